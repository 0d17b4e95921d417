//! What NATS alone takes: the bare client, messages of a delta's size.

use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::now_us;
use crate::servers::Servers;

/// Bytes of a delta of four blocks, about.
const BYTES: usize = 200;
const SUBJECT: &str = "bench.visible";
const PATIENCE: Duration = Duration::from_secs(10);

/// A sender, and subscribers on connections of their own.
pub(crate) struct OneWay {
    sender: async_nats::Client,
    received: Vec<mpsc::Receiver<f64>>,
    _subscribers: JoinSet<()>,
}

impl OneWay {
    pub(crate) async fn start(servers: &Servers, subscribers: usize) -> anyhow::Result<Self> {
        let mut tasks = JoinSet::new();
        let mut received = Vec::new();
        for _ in 0..subscribers {
            let client = async_nats::connect(&servers.nats_url).await?;
            let mut subscriber = client.subscribe(SUBJECT).await?;
            client.flush().await?;
            let (delays, receiver) = mpsc::channel(1 << 20);
            received.push(receiver);
            tasks.spawn(async move {
                // The client has to live as long as its subscription.
                let _client = client;
                while let Some(message) = subscriber.next().await {
                    let sent = message.payload.first_chunk().map_or(0.0, |at| f64::from_be_bytes(*at));
                    if delays.send(now_us() - sent).await.is_err() {
                        return;
                    }
                }
            });
        }
        let sender = async_nats::connect(&servers.nats_url).await?;
        Ok(Self { sender, received, _subscribers: tasks })
    }

    pub(crate) async fn send(&mut self) -> anyhow::Result<()> {
        let mut payload = vec![0; BYTES];
        payload.splice(..8, now_us().to_be_bytes());
        Ok(self.sender.publish(SUBJECT, payload.into()).await?)
    }

    /// Answers, message by message, how long it took to the last subscriber.
    pub(crate) async fn take(&mut self, messages: usize) -> anyhow::Result<Vec<f64>> {
        let mut slowest = vec![0.0_f64; messages];
        for receiver in &mut self.received {
            for slot in &mut slowest {
                let delay =
                    tokio::time::timeout(PATIENCE, receiver.recv()).await.context("a message is missing")?;
                *slot = slot.max(delay.context("a subscriber ended")?);
            }
        }
        Ok(slowest)
    }
}
