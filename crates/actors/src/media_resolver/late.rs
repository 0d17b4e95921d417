//! Look-ups that outlast a request's budget.
//!
//! ```text
//! ask ──► found in time ──► the request is prepared with them
//!   └───► late ──► the request is placed without them ──► awaited before anything is sent to the worker
//!             └──► nobody waits any more: they end in the background, for the cache
//! ```

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Error, Found};

/// One item's look-up.
pub(super) type LookUp = BoxFuture<'static, Result<Option<Found>, Error>>;

type Numbered = (usize, Result<Option<Found>, Error>);

/// Requests whose look-ups end in the background; those of further ones are given up, the oldest first.
const KEPT_MAX: usize = 256;

/// Look-ups of one request that were not done within its budget. Dropped, they go on for the cache, and what they find
/// is held for nobody.
pub struct Late {
    arriving: mpsc::Receiver<Numbered>,
    running: JoinSet<()>,
    keeper: Keeper,
}

/// Items that came late, by index.
#[derive(Debug, Default)]
pub struct Arrived(pub(super) Vec<(usize, Found)>);

/// Holds look-ups that nobody waits for; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeper(Arc<Mutex<VecDeque<JoinSet<()>>>>);

impl fmt::Debug for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Late").field("running", &self.running.len()).finish_non_exhaustive()
    }
}

impl Late {
    fn of(look_ups: FuturesUnordered<BoxFuture<'static, Numbered>>, keeper: &Keeper) -> Self {
        let (sender, arriving) = mpsc::channel(look_ups.len().max(1));
        let send = |look_up: BoxFuture<'static, Numbered>| {
            let sender = sender.clone();
            async move {
                sender.send(look_up.await).await.ok();
            }
        };
        Self { arriving, running: look_ups.into_iter().map(send).collect(), keeper: keeper.clone() }
    }

    /// Waits for the rest; how long is bounded by what one look-up may take.
    ///
    /// # Errors
    /// `Item` is the client's to mend.
    pub async fn rest(mut self) -> Result<Arrived, Error> {
        let mut arrived = Vec::new();
        while let Some((index, found)) = self.arriving.recv().await {
            arrived.extend(found?.map(|found| (index, found)));
        }
        while let Some(done) = self.running.join_next().await {
            done.map_err(|_| crate::preprocessor::Error::Panicked)?;
        }
        arrived.sort_unstable_by_key(|(index, _)| *index);
        Ok(Arrived(arrived))
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.keeper.keep(std::mem::take(&mut self.running));
    }
}

impl Keeper {
    fn keep(&self, running: JoinSet<()>) {
        if running.is_empty() {
            return;
        }
        let mut kept = self.0.lock();
        kept.retain_mut(|running| {
            while running.try_join_next().is_some() {}
            !running.is_empty()
        });
        if kept.len() >= KEPT_MAX {
            drop(kept.pop_front());
        }
        kept.push_back(running);
    }
}

/// Runs look-ups together, one for each item, and returns what is found within the budget, by index.
pub(super) async fn within(
    budget: Duration,
    look_ups: impl Iterator<Item = LookUp>,
    keeper: &Keeper,
) -> Result<(Vec<Option<Found>>, Option<Late>), Error> {
    let mut running = FuturesUnordered::new();
    let mut found = Vec::new();
    for (index, look_up) in look_ups.enumerate() {
        found.push(None);
        let numbered: BoxFuture<'static, Numbered> = Box::pin(async move { (index, look_up.await) });
        running.push(numbered);
    }
    let in_time = async {
        while let Some((index, outcome)) = running.next().await {
            if let Some(place) = found.get_mut(index) {
                *place = outcome?;
            }
        }
        Ok(())
    };
    match tokio::time::timeout(budget, in_time).await {
        Ok(Ok(())) => Ok((found, None)),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok((found, Some(Late::of(running, keeper)))),
    }
}
