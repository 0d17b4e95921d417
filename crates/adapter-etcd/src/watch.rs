//! Watching a prefix over compactions, broken streams and restarts.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{EventType, WatchOptions, WatchResponse};
use ports::registry::{Entry, Event, Watch};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::registry::{Connection, entry, within};

/// Events that wait for the watcher; beyond, etcd keeps them.
const EVENTS_MAX: usize = 1024;
const RETRY_MIN: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// The watcher's end.
#[derive(Debug)]
pub(crate) struct Watching {
    events: mpsc::Receiver<Event>,
    pump: Option<AbortHandle>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(pump) = &self.pump {
            pump.abort();
        }
    }
}

impl Watching {
    pub(crate) fn pumped_by(mut self, pump: AbortHandle) -> Self {
        self.pump = Some(pump);
        self
    }
}

/// The watcher is gone.
struct Gone;

/// Makes a watch that begins with a listing, and the task that feeds it.
pub(crate) fn follow(
    connection: Connection,
    prefix: String,
    listing: (Vec<Entry>, i64),
) -> (Watching, impl Future<Output = ()> + Send + 'static) {
    let (sender, events) = mpsc::channel(EVENTS_MAX);
    let pump = async move {
        let mut listing = listing;
        loop {
            let (entries, revision) = listing;
            if sender.send(Event::Reset(entries)).await.is_err() {
                return;
            }
            if let Err(Gone) = stream(&connection, &prefix, revision, &sender).await {
                return;
            }
            listing = relist(&connection, &prefix).await;
        }
    };
    (Watching { events, pump: None }, pump)
}

/// Passes changes on until the stream ends for whatever reason; then the prefix has to be listed again.
async fn stream(
    connection: &Connection,
    prefix: &str,
    revision: i64,
    sender: &mpsc::Sender<Event>,
) -> Result<(), Gone> {
    let Ok(mut client) = connection.client().await else { return Ok(()) };
    let options = WatchOptions::new().with_prefix().with_start_revision(revision + 1);
    let Ok(mut stream) = within(client.watch(prefix, Some(options))).await else { return Ok(()) };
    loop {
        let response = tokio::select! {
            response = stream.message() => response,
            () = sender.closed() => return Err(Gone),
        };
        match response {
            // Below the compacted revision etcd cancels, with or without a reason, and keeps the stream open.
            Ok(Some(response)) if response.canceled() => {
                tracing::debug!(compacted = response.compact_revision(), "watch cancelled, listing again");
                return Ok(());
            }
            Ok(Some(response)) => pass_on(&response, sender).await?,
            Ok(None) => return Ok(()),
            Err(error) => {
                tracing::debug!(%error, "watch broken, listing again");
                return Ok(());
            }
        }
    }
}

async fn pass_on(response: &WatchResponse, sender: &mpsc::Sender<Event>) -> Result<(), Gone> {
    for change in response.events() {
        let Some(entry) = change.kv().and_then(entry) else { continue };
        let event = match change.event_type() {
            EventType::Put => Event::Put(entry),
            EventType::Delete => Event::Deleted { key: entry.key },
        };
        sender.send(event).await.map_err(|_| Gone)?;
    }
    Ok(())
}

async fn relist(connection: &Connection, prefix: &str) -> (Vec<Entry>, i64) {
    let mut pause = RETRY_MIN;
    loop {
        sleep(pause).await;
        match connection.list(prefix).await {
            Ok(listing) => return listing,
            Err(error) => {
                tracing::debug!(%error, "registry does not answer");
                pause = (pause * 2).min(RETRY_MAX);
            }
        }
    }
}

#[async_trait]
impl Watch for Watching {
    async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}
