//! The registry's conformance suite against a real `etcd`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Registry;
use ports::conformance::registry::{Harness, TTL, check};
use ports::registry::{Entry, Error, Event};
use tokio::time::{sleep, timeout};

use crate::server::{PATIENCE, Server};

#[async_trait]
impl Harness for Server {
    async fn connect(&self) -> Arc<dyn Registry> {
        Arc::new(self.registry().await)
    }
    async fn cut(&self) {
        self.kill().await;
    }
    async fn heal(&self) {
        self.run().await;
    }
    async fn expire(&self, key: &str) {
        let mut client = self.client().await;
        let held = client.get(key, None).await.unwrap();
        let lease = held.kvs().first().unwrap().lease();
        client.lease_revoke(lease).await.unwrap();
    }
    async fn compact(&self) {
        let mut client = self.client().await;
        let revision = client.get("/conformance/any", None).await.unwrap().header().unwrap().revision();
        client.compact(revision, None).await.unwrap();
    }
}

fn entry(key: &str) -> Entry {
    Entry { key: key.to_owned(), value: "1".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms() {
    let server = Server::start().await;
    check(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_registry_conforms_over_tls_with_credentials() {
    let server = Server::start_secure().await;
    check(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_fell_below_a_compaction_lists_again() {
    let server = Server::start().await;
    let registry = server.registry().await;
    let mut watch = registry.watch("/w/").await.unwrap();
    assert_eq!(watch.next().await, Some(Event::Reset(vec![])));
    // While the watcher's server is away, history moves on and is compacted.
    server.kill().await;
    server.run().await;
    let lease = server.registry().await.register(entry("/w/a"), TTL).await.unwrap();
    for value in ["2", "3"] {
        lease.update(value.into()).await.unwrap();
    }
    Harness::compact(&server).await;
    let last = Entry { key: "/w/a".to_owned(), value: "3".into() };
    let caught_up = async {
        loop {
            match watch.next().await.unwrap() {
                Event::Reset(entries) if entries == [last.clone()] => return,
                Event::Put(entry) if entry == last => return,
                Event::Reset(_) | Event::Put(_) | Event::Deleted { .. } => {}
            }
        }
    };
    timeout(PATIENCE, caught_up).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_start_before_its_server_and_fails_in_time() {
    let server = Server::start().await;
    server.kill().await;
    let registry = server.registry().await;
    let listed = timeout(Duration::from_secs(3), registry.list("/")).await.unwrap();
    assert!(matches!(listed, Err(Error::Unreachable)), "{listed:?}");
    server.run().await;
    let listed = async {
        while registry.list("/").await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(PATIENCE, listed).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_survives_a_restart_of_the_server() {
    let server = Server::start().await;
    let registry = server.registry().await;
    let lease = registry.register(entry("/k"), Duration::from_secs(10)).await.unwrap();
    server.kill().await;
    server.run().await;
    assert!(timeout(Duration::from_secs(5), lease.lost()).await.is_err());
    assert_eq!(registry.list("/k").await.unwrap(), [entry("/k")]);
}
