//! The agent between a real event wire and in-memory planes.

#[path = "../../../../crates/engine-events/tests/recorded/fixture.rs"]
mod fixture;
mod media;
#[path = "../../../../crates/adapter-zmq/tests/feed/publisher.rs"]
mod publisher;
mod recorded;
mod town;

use std::time::Duration;

use agent::Phase;
use bytes::Bytes;
use membership::card::State;
use ports::event_feed::conformance::Rig;
use publisher::{Layout, Publisher};
use town::Town;

/// `[0.5, [["BlockStored", [number], nil, 32 × number, 32, nil, "GPU", nil, [nil]]], 0]`
fn stored(number: u8) -> Bytes {
    let mut payload = b"\x93\xca\x3f\x00\x00\x00\x91\x99\xabBlockStored\x91".to_vec();
    payload.extend_from_slice(&[number, 0xc0, 0xdc, 0x00, 0x20]);
    payload.extend_from_slice(&[number; 32]);
    payload.extend_from_slice(b"\x20\xc0\xa3GPU\xc0\x91\xc0\x00");
    Bytes::from(payload)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_card_says_what_the_engine_is_and_does() {
    let town = Town::new();
    *town.started_s.lock() = None;
    let publisher = Publisher::bound(Layout::WithTopic).await;
    let agent = town.agent(town.config(&publisher));
    assert_eq!(*agent.phase().borrow(), Phase::Discovering);
    *town.started_s.lock() = Some(1000);
    let card = town.ready_card().await;
    assert_eq!((card.model.as_str(), card.worker.as_str(), card.block_size), ("tiny", "w0", 32));
    assert_eq!((card.adapters, card.engine.version.as_str()), (vec!["sql".to_owned()], "0.32.0"));
    assert_eq!((card.limits.context_tokens_max, card.limits.kv_blocks), (4096, 1000));
    assert_eq!((card.ranks.len(), card.incarnation.started_ms), (1, 1_000_000));
    *town.started_s.lock() = None;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(*agent.phase().borrow(), Phase::Ready, "a late answer to the agent takes no worker away");
    *town.started_s.lock() = Some(1000);
    *town.running.lock() = 1;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let stopping = agent.stop(Duration::from_secs(10));
    let watching = async {
        town.card(|card| card.state == State::Draining).await;
        tokio::time::sleep(Duration::from_millis(2500)).await;
        *town.running.lock() = 0;
    };
    tokio::join!(stopping, watching);
    assert!(town.registry_is_empty().await, "the card is given back");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_stands_by_until_the_first_is_gone() {
    let town = Town::new();
    let publisher = Publisher::bound(Layout::WithTopic).await;
    let first = town.agent(town.config(&publisher));
    assert!(first.ready().await);
    let second = town.agent(town.config(&publisher));
    let mut phase = second.phase();
    phase.wait_for(|phase| *phase == Phase::Standby).await.ok();
    first.stop(Duration::ZERO).await;
    assert!(second.ready().await);
    second.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_lease_is_taken_again_and_stops_nothing() {
    let town = Town::new();
    let mut publisher = Publisher::bound(Layout::WithTopic).await;
    let mut replica = town.replica().await;
    let agent = town.agent(town.config(&publisher));
    let card = town.ready_card().await;
    publisher.settle().await;
    publisher.publish(stored(1)).await;
    replica.hear(|replica| replica.seq == 1).await;
    town.registry.expire(&wire::registry_key::worker("test", &card.model, &card.worker));
    publisher.publish(stored(2)).await;
    replica.hear(|replica| replica.seq == 2).await;
    assert_eq!(town.ready_card().await.incarnation, card.incarnation, "the same life goes on");
    agent.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_goes_on_before_its_old_lease_has_ended() {
    let town = Town::new();
    let mut publisher = Publisher::bound(Layout::WithTopic).await;
    let mut replica = town.replica().await;
    let state_dir = std::env::temp_dir().join(format!("sightline-agent-{}", std::process::id()));
    let config = agent::Config { state_dir: Some(state_dir.clone()), ..town.config(&publisher) };
    let first = town.agent(config.clone());
    town.ready_card().await;
    publisher.settle().await;
    publisher.publish(stored(1)).await;
    replica.hear(|replica| replica.seq == 1).await;
    let checkpointed = async {
        while std::fs::read_dir(&state_dir).is_ok_and(|dir| dir.count() == 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    tokio::time::timeout(town::PATIENCE, checkpointed).await.ok();
    // What a crash leaves behind: an entry that nobody keeps alive any more, and nobody else can take.
    let key = wire::registry_key::workers("test");
    let left = ports::Registry::list(&town.registry, &key).await.ok().and_then(|mut left| left.pop());
    drop(first);
    publisher.publish(stored(2)).await;
    let left = left
        .into_iter()
        .map(|entry| ports::Registry::register(&town.registry, entry, Duration::from_secs(60)));
    let stale = futures::future::join_all(left).await;
    let second = town.agent(config);
    replica.hear(|replica| replica.seq == 2).await;
    assert_eq!(replica.keys.len(), 2, "in the same life, without what was known being lost");
    drop(stale);
    second.stop(Duration::ZERO).await;
    std::fs::remove_dir_all(&state_dir).ok();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_restarts_comes_back_as_another_life() {
    let town = Town::new();
    let mut publisher = Publisher::bound(Layout::WithTopic).await;
    let mut replica = town.replica().await;
    let agent = town.agent(town.config(&publisher));
    let before = town.ready_card().await.incarnation;
    publisher.settle().await;
    publisher.publish(stored(1)).await;
    replica.hear(|replica| replica.seq == 1).await;
    *town.started_s.lock() = Some(2000);
    publisher.restart().await;
    let after = town.card(|card| card.state == State::Ready && card.incarnation > before).await;
    assert_eq!(after.incarnation.started_ms, 2_000_000);
    publisher.settle().await;
    publisher.publish(stored(7)).await;
    replica.hear(|replica| replica.incarnation == after.incarnation && replica.seq == 1).await;
    assert_eq!(replica.keys.len(), 1);
    agent.stop(Duration::ZERO).await;
}
