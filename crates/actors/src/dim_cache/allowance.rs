//! How much one request may hold of fetched media.

use std::collections::HashMap;
use std::sync::Arc;

use identity::MediaId;
use parking_lot::Mutex;
use ports::media_source::{NoRoom, Room};

use crate::byte_budget::{ByteBudget, Share, Tab};

/// What one request may hold of fetched media, and holds of them till it ends; clones are of the same request.
///
/// Each request that is given an item holds it, wherever it came from; the same bytes are held once.
#[derive(Clone, Debug)]
pub struct Allowance(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    own: Tab,
    all: Tab,
    held: Mutex<HashMap<MediaId, Shares>>,
}

/// The room that one item takes, in what its request may hold of media and in what all may hold together.
#[derive(Debug)]
pub(super) struct Shares([Share; 2]);

impl Room for Shares {
    fn grow(&mut self, bytes: u64) -> Result<(), NoRoom> {
        self.0.iter_mut().try_for_each(|share| share.grow(bytes))
    }
}

impl Allowance {
    /// Makes the allowance of a request: a budget of its own for media, within what it holds of one that all share.
    #[must_use]
    pub fn new(own: &ByteBudget, all: Tab) -> Self {
        Self(Arc::new(Inner { own: own.tab(), all, held: Mutex::default() }))
    }

    /// Returns all that the request holds, fetched or not.
    #[must_use]
    pub fn tab(&self) -> &Tab {
        &self.0.all
    }

    /// Begins to make room for an item.
    pub(super) fn room(&self) -> Shares {
        Shares([self.0.own.share(), self.0.all.share()])
    }

    /// Holds an item for which there is room.
    pub(super) fn keep(&self, id: &MediaId, shares: Shares) {
        self.0.held.lock().entry(id.clone()).or_insert(shares);
    }

    /// Holds an item of so many bytes.
    pub(super) fn hold(&self, id: &MediaId, bytes: u64) -> Result<(), NoRoom> {
        if !self.0.held.lock().contains_key(id) {
            let mut shares = self.room();
            shares.grow(bytes)?;
            self.keep(id, shares);
        }
        Ok(())
    }
}

impl Default for Allowance {
    /// Makes one that allows everything.
    fn default() -> Self {
        let endless = ByteBudget::new("none", u64::MAX);
        Self::new(&endless, endless.tab())
    }
}
