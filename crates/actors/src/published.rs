//! What an actor shows to readers that do not ask it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use tokio::sync::watch;

/// A value that its actor replaces as a whole, and that serves on while the actor is being restarted.
#[derive(Debug)]
pub(crate) struct Published<T> {
    value: ArcSwap<T>,
    version: watch::Sender<u64>,
}

impl<T> Published<T> {
    /// Publishes a first value, as version 0.
    pub(crate) fn new(value: T) -> Self {
        Self { value: ArcSwap::from_pointee(value), version: watch::Sender::new(0) }
    }

    /// Looks at the present value, for a moment.
    pub(crate) fn load(&self) -> Guard<Arc<T>> {
        self.value.load()
    }

    /// Returns the present value, to keep.
    pub(crate) fn load_full(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// Publishes the next value; for the actor alone.
    pub(crate) fn replace(&self, value: T) {
        self.value.store(Arc::new(value));
        self.version.send_modify(|version| *version += 1);
    }

    /// Watches the version.
    pub(crate) fn changed(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Waits until the value satisfies a condition.
    pub(crate) async fn wait_for(&self, condition: impl Fn(&T) -> bool) -> Arc<T> {
        let mut changed = self.changed();
        loop {
            changed.borrow_and_update();
            let value = self.load_full();
            if condition(&value) || changed.changed().await.is_err() {
                return value;
            }
        }
    }
}
