//! The ZeroMQ feed keeps the port's contract, with the agent connecting and with the agent binding, on both replay layouts.

mod publisher;

use adapter_zmq::{Attach, Config, ZmqFeed};
use ports::event_feed::conformance;
use publisher::{Layout, Publisher};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_to_a_publisher_that_binds() {
    conformance::run(async || Publisher::bound(Layout::WithTopic).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn binding_for_a_publisher_that_connects() {
    conformance::run(async || Publisher::connecting(Layout::WithoutTopic).await).await;
}

#[tokio::test]
async fn a_feed_without_replay_says_so() {
    let events = Attach::Connect("tcp://127.0.0.1:9".to_owned());
    conformance::refuses_replay(&mut ZmqFeed::new(Config::new(events, None))).await;
}
