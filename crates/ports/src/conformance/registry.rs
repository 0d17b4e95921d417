//! The contract of [`crate::Registry`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Clause, Violation};
use crate::Registry;
use crate::registry::{Entry, Error, Event, Lease, Watch};

/// The shortest lease that every implementation keeps.
pub const TTL: Duration = Duration::from_secs(2);

/// Makes clients of one registry and breaks it.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Connects a further client.
    async fn connect(&self) -> Arc<dyn Registry>;
    /// Makes the registry unreachable for all clients.
    async fn cut(&self);
    /// Heals what `cut` broke.
    async fn heal(&self);
    /// Lets the lease that holds a key expire at once.
    async fn expire(&self, key: &str);
    /// Forgets the history that watches could continue from.
    async fn compact(&self);
}

/// Runs the whole suite on keys below `/conformance/`, which it leaves empty.
///
/// # Errors
/// The first clause that does not hold.
pub async fn check(harness: &dyn Harness) -> Result<(), Violation> {
    let (ours, theirs) = (harness.connect().await, harness.connect().await);
    registration(&*ours, &*theirs).await?;
    watching(&*ours, &*theirs).await?;
    expiry(harness, &*ours, &*theirs).await?;
    abandonment(&*ours, &*theirs).await?;
    compaction(harness, &*ours, &*theirs).await?;
    outage(harness, &*ours, &*theirs).await
}

fn entry(key: &str, value: &str) -> Entry {
    Entry { key: key.to_owned(), value: Bytes::from(value.to_owned()) }
}

async fn event(clause: Clause, watch: &mut dyn Watch) -> Result<Event, Violation> {
    clause.soon(watch.next()).await?.ok_or_else(|| clause.violated("the watch ended"))
}

/// Reads events until the watcher's view of the prefix is as expected.
async fn converges(clause: Clause, watch: &mut dyn Watch, expected: &[Entry]) -> Result<(), Violation> {
    let mut view: Vec<Entry> = Vec::new();
    loop {
        match event(clause, watch).await? {
            Event::Reset(entries) => view = entries,
            Event::Put(put) => {
                view.retain(|entry| entry.key != put.key);
                view.push(put);
            }
            Event::Deleted { key } => view.retain(|entry| entry.key != key),
        }
        view.sort_by(|a, b| a.key.cmp(&b.key));
        if view == expected {
            return Ok(());
        }
    }
}

async fn registration(ours: &dyn Registry, theirs: &dyn Registry) -> Result<(), Violation> {
    let clause = Clause("a registered key is listed until it is revoked, with its latest value");
    let key = "/conformance/registration/a";
    let lease = clause.ok(ours.register(entry(key, "1"), TTL).await)?;
    clause.same(&clause.ok(theirs.list("/conformance/registration/").await)?, &vec![entry(key, "1")])?;
    clause.same(&clause.ok(theirs.list("/conformance/registration/b").await)?, &vec![])?;
    clause.ok(lease.update(Bytes::from("2")).await)?;
    clause.same(&clause.ok(theirs.list("/conformance/registration/").await)?, &vec![entry(key, "2")])?;

    let clause = Clause("a key belongs to one lease");
    let taken = theirs.register(entry(key, "3"), TTL).await;
    clause.holds(matches!(taken, Err(Error::Taken { .. })), format!("{taken:?}"))?;

    let clause = Clause("a lease is kept alive while its handle lives");
    clause.never_lost(&*lease, TTL * 2).await?;
    clause.same(&clause.ok(theirs.list(key).await)?, &vec![entry(key, "2")])?;
    clause.ok(lease.revoke().await)?;
    clause.same(&clause.ok(theirs.list(key).await)?, &vec![])
}

impl Clause {
    async fn never_lost(self, lease: &dyn Lease, during: Duration) -> Result<(), Violation> {
        match tokio::time::timeout(during, lease.lost()).await {
            Ok(()) => Err(self.violated("the lease was lost")),
            Err(_) => Ok(()),
        }
    }
}

async fn watching(ours: &dyn Registry, theirs: &dyn Registry) -> Result<(), Violation> {
    let clause = Clause("a watch begins with everything and then tells every change in order");
    let (a, b) = ("/conformance/watching/a", "/conformance/watching/b");
    let first = clause.ok(ours.register(entry(a, "1"), TTL).await)?;
    let mut watch = clause.ok(theirs.watch("/conformance/watching/").await)?;
    clause.same(&event(clause, &mut *watch).await?, &Event::Reset(vec![entry(a, "1")]))?;
    let second = clause.ok(ours.register(entry(b, "1"), TTL).await)?;
    clause.ok(first.update(Bytes::from("2")).await)?;
    clause.ok(second.revoke().await)?;
    let other = clause.ok(ours.register(entry("/conformance/other", "1"), TTL).await)?;
    clause.ok(first.revoke().await)?;
    for expected in [
        Event::Put(entry(b, "1")),
        Event::Put(entry(a, "2")),
        Event::Deleted { key: b.to_owned() },
        Event::Deleted { key: a.to_owned() },
    ] {
        clause.same(&event(clause, &mut *watch).await?, &expected)?;
    }
    clause.never(watch.next()).await?;
    clause.ok(other.revoke().await)
}

async fn expiry(harness: &dyn Harness, ours: &dyn Registry, theirs: &dyn Registry) -> Result<(), Violation> {
    let clause = Clause("an expired lease deletes its key, tells its owner and can be taken again");
    let key = "/conformance/expiry/a";
    let lease = clause.ok(ours.register(entry(key, "1"), TTL).await)?;
    let mut watch = clause.ok(theirs.watch("/conformance/expiry/").await)?;
    clause.same(&event(clause, &mut *watch).await?, &Event::Reset(vec![entry(key, "1")]))?;
    harness.expire(key).await;
    clause.same(&event(clause, &mut *watch).await?, &Event::Deleted { key: key.to_owned() })?;
    clause.soon(lease.lost()).await?;
    let late = lease.update(Bytes::from("2")).await;
    clause.holds(matches!(late, Err(Error::Expired { .. })), format!("{late:?}"))?;
    let again = clause.ok(ours.register(entry(key, "3"), TTL).await)?;
    clause.same(&event(clause, &mut *watch).await?, &Event::Put(entry(key, "3")))?;
    drop(lease);
    clause.never(watch.next()).await?;
    clause.ok(again.revoke().await)
}

async fn abandonment(ours: &dyn Registry, theirs: &dyn Registry) -> Result<(), Violation> {
    let clause = Clause("a dropped lease expires");
    let key = "/conformance/abandonment/a";
    let lease = clause.ok(ours.register(entry(key, "1"), TTL).await)?;
    let mut watch = clause.ok(theirs.watch(key).await)?;
    clause.same(&event(clause, &mut *watch).await?, &Event::Reset(vec![entry(key, "1")]))?;
    drop(lease);
    clause.same(&event(clause, &mut *watch).await?, &Event::Deleted { key: key.to_owned() })
}

async fn compaction(
    harness: &dyn Harness,
    ours: &dyn Registry,
    theirs: &dyn Registry,
) -> Result<(), Violation> {
    let clause = Clause("a watch survives a compaction");
    let key = "/conformance/compaction/a";
    let mut watch = clause.ok(theirs.watch("/conformance/compaction/").await)?;
    clause.same(&event(clause, &mut *watch).await?, &Event::Reset(vec![]))?;
    let lease = clause.ok(ours.register(entry(key, "1"), TTL).await)?;
    for number in 2..10 {
        clause.ok(lease.update(Bytes::from(number.to_string())).await)?;
    }
    harness.compact().await;
    clause.ok(lease.update(Bytes::from("last")).await)?;
    converges(clause, &mut *watch, &[entry(key, "last")]).await?;
    clause.ok(lease.revoke().await)?;
    converges(clause, &mut *watch, &[]).await
}

async fn outage(harness: &dyn Harness, ours: &dyn Registry, theirs: &dyn Registry) -> Result<(), Violation> {
    let clause = Clause("calls to an unreachable registry fail in time");
    let key = "/conformance/outage/a";
    let lease = clause.ok(ours.register(entry(key, "1"), TTL).await)?;
    let mut watch = clause.ok(theirs.watch("/conformance/outage/").await)?;
    clause.same(&event(clause, &mut *watch).await?, &Event::Reset(vec![entry(key, "1")]))?;
    harness.cut().await;
    let listed = clause.soon(theirs.list("/conformance/")).await?;
    clause.holds(matches!(listed, Err(Error::Unreachable)), format!("{listed:?}"))?;
    let registered = clause.soon(ours.register(entry("/conformance/outage/b", "1"), TTL)).await?;
    clause.holds(matches!(registered, Err(Error::Unreachable)), format!("{registered:?}"))?;
    let updated = clause.soon(lease.update(Bytes::from("2"))).await?;
    clause.holds(matches!(updated, Err(Error::Unreachable)), format!("{updated:?}"))?;

    let clause = Clause("a watch survives an outage and then shows what is");
    harness.heal().await;
    let renewed = async {
        loop {
            // Whether the first lease outlived the outage depends on the registry; either way the key comes back.
            let updated = lease.update(Bytes::from("3")).await;
            match updated {
                Ok(()) => return None,
                Err(Error::Expired { .. }) => {
                    if let Ok(again) = ours.register(entry(key, "3"), TTL).await {
                        return Some(again);
                    }
                }
                Err(_) => {}
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let again = clause.soon(renewed).await?;
    converges(clause, &mut *watch, &[entry(key, "3")]).await?;
    clause.ok(again.unwrap_or(lease).revoke().await)?;
    converges(clause, &mut *watch, &[]).await
}
