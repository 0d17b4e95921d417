//! The bus's conformance suite against a real `nats-server`.

use std::sync::Arc;
use std::time::Duration;

use adapter_nats::Credentials;
use async_trait::async_trait;
use bytes::Bytes;
use ports::bus::{Link, Message, Received};
use ports::conformance::bus::{Harness, check};
use ports::{Bus, bus};
use tokio::process::Command;
use tokio::time::timeout;

use crate::server::{PATIENCE, Server, link_is};

#[async_trait]
impl Harness for Server {
    async fn connect(&self) -> Arc<dyn Bus> {
        let bus = self.bus().await;
        link_is(&bus, Link::Up).await;
        bus
    }
    async fn cut(&self) {
        self.kill().await;
    }
    async fn heal(&self) {
        self.run().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bus_conforms() {
    let server = Server::start(&[]).await;
    check(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bus_conforms_over_tls_with_credentials() {
    let mut server = Server::start_secure(&["--user", "sightline", "--pass", "right"], true).await;
    server.credentials = Credentials::User { name: "sightline".to_owned(), password: "right".to_owned() };
    check(&server).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_may_start_before_its_server() {
    let server = Server::start(&[]).await;
    server.kill().await;
    let bus = server.bus().await;
    let early = bus.publish(Message { subject: "early".to_owned(), ..Message::default() }).await;
    assert!(matches!(early, Err(bus::Error::Disconnected)), "{early:?}");
    let mut subscription = bus.subscribe("late", 10).await.unwrap();
    server.run().await;
    link_is(&bus, Link::Up).await;
    let message = Message { subject: "late".to_owned(), payload: Bytes::from("x"), ..Message::default() };
    let seen = async {
        loop {
            drop(bus.publish(message.clone()).await);
            match timeout(Duration::from_millis(50), subscription.next()).await {
                Ok(Some(Received::Message(seen))) => return seen,
                Ok(Some(Received::Gap)) | Err(_) => {}
                Ok(None) => panic!("the subscription ended"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, seen).await.unwrap(), message);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hung_server_is_noticed() {
    let server = Server::start(&[]).await;
    let bus = server.bus().await;
    link_is(&bus, Link::Up).await;
    let pid = server.pid().to_string();
    let signal =
        async |name: &str| assert!(Command::new("kill").args([name, &pid]).status().await.unwrap().success());
    signal("-STOP").await;
    link_is(&bus, Link::Down).await;
    signal("-CONT").await;
    link_is(&bus, Link::Up).await;
}
