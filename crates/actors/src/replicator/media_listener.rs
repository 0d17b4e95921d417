//! Who else hears of the media in engines' prompts.

use std::fmt;

use identity::Holder;
use membership::{Change, Delta, MediaRun};

/// Hears what deltas tell of media: which items a holder's engine has computed, and as how many tokens.
///
/// What is missed is not told again, and a delta may be told twice: nothing may depend on more than a hint.
pub trait MediaListener: Send + Sync + fmt::Debug {
    /// Takes note of items of one delta; must not block.
    fn computed(&self, holder: &Holder, runs: &[&MediaRun]);
}

/// Tells all listeners of a delta's media, if it has any.
pub(super) fn tell(listeners: &[std::sync::Arc<dyn MediaListener>], delta: &Delta) {
    if listeners.is_empty() {
        return;
    }
    let runs = delta.changes.iter().flat_map(|change| match change {
        Change::Stored { media, .. } => media.as_slice(),
        Change::Removed { .. } | Change::Cleared => &[],
    });
    let runs: Vec<&MediaRun> = runs.collect();
    if runs.is_empty() {
        return;
    }
    let holder = delta.holder();
    for listener in listeners {
        listener.computed(&holder, &runs);
    }
}
