//! The in-memory event feed keeps the port's contract.

use async_trait::async_trait;
use bytes::Bytes;
use ports::EventFeed;
use ports::event_feed::conformance::{self, Rig};
use ports::event_feed::memory::{Publisher, feed};

struct Memory {
    publisher: Publisher,
}

#[async_trait]
impl Rig for Memory {
    async fn feed(&mut self) -> Box<dyn EventFeed> {
        Box::new(self.publisher.reconnect())
    }

    async fn settle(&mut self) {}

    async fn publish(&mut self, payload: Bytes) -> u64 {
        self.publisher.publish(payload)
    }

    async fn lose(&mut self, payload: Bytes) -> u64 {
        self.publisher.lose(payload)
    }

    async fn restart(&mut self) {
        self.publisher.restart();
    }
}

#[tokio::test]
async fn the_memory_feed_conforms() {
    conformance::run(async || Memory { publisher: feed(1000).0 }).await;
    conformance::refuses_replay(&mut feed(0).1).await;
}
