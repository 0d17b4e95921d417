//! The in-memory engines and origins keep their ports' contracts.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use ports::conformance::{engine, media_source};
use ports::engine::Endpoint;
use ports::engine::memory::{MemoryEngine, Reply};
use ports::media_source::memory::{MemorySource, Resource};
use ports::{Engine, MediaSource};

#[derive(Default)]
struct Engines {
    client: MemoryEngine,
    made: AtomicUsize,
}

#[async_trait]
impl engine::Harness for Engines {
    fn client(&self) -> &dyn Engine {
        &self.client
    }

    async fn engine(&self, reply: Reply) -> Endpoint {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let endpoint = Endpoint::parse(&format!("http://engine-{number}")).unwrap();
        self.client.serve(&endpoint, move |_| reply.clone());
        endpoint
    }

    async fn cancelled(&self) -> u64 {
        self.client.cancelled()
    }
}

struct Origin(MemorySource);

#[async_trait]
impl media_source::Harness for Origin {
    fn client(&self) -> &dyn MediaSource {
        &self.0
    }

    async fn put(&self, name: &str, resource: Resource) -> String {
        let url = format!("http://origin/{name}");
        self.0.put(&url, resource);
        url
    }

    async fn requests(&self) -> usize {
        self.0.fetches().len()
    }
}

#[tokio::test]
async fn engines_conform() {
    engine::check(&Engines::default()).await.unwrap();
}

#[tokio::test]
async fn origins_conform() {
    media_source::check(&Origin(MemorySource::default())).await.unwrap();
}
