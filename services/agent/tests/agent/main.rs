//! The agent between a real event wire and in-memory planes.

#[path = "../../../../crates/engine-events/tests/recorded/fixture.rs"]
mod fixture;
mod media;
#[path = "../../../../crates/adapter-zmq/tests/feed/publisher.rs"]
mod publisher;
mod recorded;
mod town;

use std::sync::Arc;
use std::time::Duration;

use agent::{Agent, Phase, Ports};
use bytes::Bytes;
use membership::card::State;
use ports::bus::Link;
use ports::event_feed::conformance::Rig;
use publisher::{Layout, Publisher};
use tokio::time::Instant;
use town::Town;

/// How long a card outlives its agent.
const LEASE: Duration = Duration::from_secs(10);

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
async fn a_second_agent_that_spoke_falls_silent_once_the_first_goes_on() {
    let town = Town::new();
    let mut publisher = Publisher::bound(Layout::WithTopic).await;
    let mut replica = town.replica().await;
    let bus = town.bus.attach();
    let ports = Ports { bus: Arc::new(bus.clone()), ..town.ports() };
    let first = Agent::start(town.config(&publisher), ports).unwrap();
    let before = town.ready_card().await.incarnation;
    bus.set_link(Link::Down);
    let (second, registry) = town.lonely_agent(town.config(&publisher));
    assert!(second.ready().await, "it hears of nobody");
    bus.set_link(Link::Up);
    publisher.settle().await;
    publisher.publish(stored(1)).await;
    let alone = replica.delta(|delta| delta.incarnation > before).await.incarnation;
    registry.set_reachable(true);
    second.phase().wait_for(|phase| *phase == Phase::Standby).await.ok();
    assert!(second.statuses().is_empty());
    assert_eq!(second.node().actors(), Vec::<String>::new(), "it follows nothing any more");
    let card = town.card(|card| card.incarnation > alone).await;
    assert_eq!(card.state, State::Ready);
    publisher.publish(stored(2)).await;
    replica.delta(|delta| delta.incarnation == card.incarnation && delta.seq == 2).await;
    first.stop(Duration::ZERO).await;
    assert!(second.ready().await);
    publisher.settle().await;
    publisher.publish(stored(3)).await;
    replica.delta(|delta| delta.incarnation > card.incarnation && delta.seq == 3).await;
    second.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_registry_a_second_agent_speaks_once_the_first_is_not_heard() {
    let town = Town::new();
    let publisher = Publisher::bound(Layout::WithTopic).await;
    let first = town.agent(town.config(&publisher));
    assert!(first.ready().await);
    let (second, _registry) = town.lonely_agent(town.config(&publisher));
    second.phase().wait_for(|phase| *phase == Phase::Standby).await.ok();
    assert!(second.statuses().is_empty(), "the first one is heard");
    drop(first);
    assert!(second.ready().await);
    second.stop(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_that_spoke_goes_on_while_the_first_is_not_heard() {
    let town = Town::new();
    let publisher = Publisher::bound(Layout::WithTopic).await;
    let first = town.agent(town.config(&publisher));
    let card = town.ready_card().await;
    // As of an agent that was killed, the card stays until its lease has ended.
    drop(first);
    let (second, registry) = town.lonely_agent(town.config(&publisher));
    assert!(second.ready().await);
    let mut questions = town.questions().await;
    registry.set_reachable(true);
    for _ in 0..2 {
        let silent = questions.next_succession().await;
        assert_eq!(Some(silent), second.statuses()[0].incarnation, "it speaks on");
    }
    assert_eq!(*second.phase().borrow(), Phase::Ready);
    town.card(|present| present.agent != card.agent && present.state == State::Ready).await;
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
    let is_checkpoint = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("engine-feed"))
    };
    let checkpointed = async {
        while !std::fs::read_dir(&state_dir).is_ok_and(|mut dir| dir.any(is_checkpoint)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    tokio::time::timeout(town::PATIENCE, checkpointed).await.ok();
    drop(first);
    publisher.publish(stored(2)).await;
    let (second, begun) = (town.agent(config), Instant::now());
    replica.hear(|replica| replica.seq == 2).await;
    assert_eq!(replica.keys.len(), 2, "in the same life, without what was known being lost");
    assert!(begun.elapsed() < LEASE / 2, "the card is known for its own");
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
