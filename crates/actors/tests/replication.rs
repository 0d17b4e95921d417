//! Indexer and Replicator of some nodes, following agents over an in-memory bus with faults, deaths and limits.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code outside of test functions")]

mod agent;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::indexer::Withheld;
use actors::replicator::CardSource;
use actors::{IndexView, IndexerArgs, IndexerHandle, ReplicatorArgs, ReplicatorHandle};
use agent::{Agent, NAMESPACE, holder, model};
use block_index::{Limits, Matches};
use identity::{BlockKey, Holder, Incarnation, ModelName};
use membership::replica::{Phase, Policy};
use parking_lot::Mutex;
use ports::bus::{Link, Message};
use ports::memory_bus::Faults;
use ports::{Bus, InMemoryBus, TokioClock};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Cards as the test sets them.
#[derive(Clone, Debug)]
struct Cards {
    carded: Arc<Mutex<Option<BTreeMap<Holder, Incarnation>>>>,
    version: watch::Sender<u64>,
}

impl Cards {
    fn of(names: &[&str]) -> Self {
        let carded = names.iter().map(|name| (holder(name), Incarnation::default())).collect();
        Self { carded: Arc::new(Mutex::new(Some(carded))), version: watch::Sender::new(1) }
    }

    fn set(&self, carded: &[(&str, u64)]) {
        let carded =
            carded.iter().map(|(name, ms)| (holder(name), Incarnation { started_ms: *ms, nonce: 0 }));
        *self.carded.lock() = Some(carded.collect());
        self.version.send_modify(|version| *version += 1);
    }
}

impl CardSource for Cards {
    fn carded(&self, _model: &ModelName) -> Option<BTreeMap<Holder, Incarnation>> {
        self.carded.lock().clone()
    }
    fn changed(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }
}

/// A node with a replica.
struct Replica {
    node: Node,
    indexer: IndexerHandle,
    replicator: ReplicatorHandle,
}

impl Replica {
    async fn start(name: &str, bus: &InMemoryBus, cards: &Cards, limits: Limits) -> Self {
        Self::named(1, name, bus, cards, limits).await
    }

    /// Starts one that other replicas tell apart by a number.
    async fn named(seed: u64, name: &str, bus: &InMemoryBus, cards: &Cards, limits: Limits) -> Self {
        let node = Node::start(name);
        let clock = Arc::new(TokioClock::from_wall(0));
        let indexer =
            IndexerHandle::start(&node, IndexerArgs { model: model(), limits, clock: clock.clone() })
                .await
                .unwrap();
        let args = ReplicatorArgs {
            namespace: NAMESPACE.to_owned(),
            model: model(),
            bus: Arc::new(bus.clone()),
            clock,
            indexer: indexer.clone(),
            cards: Arc::new(cards.clone()),
            listeners: Vec::new(),
            policy: Policy::default(),
            blocks_max: limits.blocks_max.into(),
            seed,
        };
        let replicator = ReplicatorHandle::start(&node, args).await.unwrap();
        Self { node, indexer, replicator }
    }

    fn depth(&self, holder: &Holder, keys: &[BlockKey]) -> u32 {
        let view = self.indexer.view();
        let mut matches = Matches::new();
        view.reader().matches(keys, &mut matches);
        view.holder(holder).and_then(|known| known.id).map_or(0, |id| matches.depth_of(id))
    }

    async fn equals(&self, name: &str, agent: &Agent, within: Duration) {
        let equal = |view: &IndexView| {
            let stand = agent.stand();
            view.holder(&holder(name)).is_some_and(|known| {
                let theirs = (known.incarnation, known.seq, known.blocks, known.digest);
                theirs == (Some(stand.incarnation), stand.seq, stand.blocks, stand.digest)
                    && (known.state, known.agrees) == (Phase::Live, Some(true))
            })
        };
        let outcome = timeout(within, self.indexer.wait_for(equal)).await;
        assert!(outcome.is_ok(), "{name}: agent {:?}, view {:?}", agent.stand(), self.indexer.view());
    }
}

fn keys(from: u64, count: u64) -> Vec<BlockKey> {
    (from..from + count).map(|key| BlockKey::new(key.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

#[tokio::test(start_paused = true)]
async fn a_replica_joins_follows_and_agrees() {
    let bus = InMemoryBus::new();
    let agent = Agent::start(Arc::new(bus.attach()), "w0", 1);
    let (system, tail) = (keys(0, 5000), keys(10_000, 200));
    agent.store(None, &system).await;
    let replica = Replica::start("joins", &bus, &Cards::of(&["w0"]), Limits::default()).await;
    assert!(!replica.indexer.is_ready());
    replica.equals("w0", &agent, 3 * SECOND).await;
    assert!(replica.indexer.is_ready());
    assert_eq!(replica.depth(&holder("w0"), &system), 5000);
    agent.store(system.last().copied(), &tail).await;
    agent.remove(tail[199]).await;
    replica.equals("w0", &agent, 3 * SECOND).await;
    let prompt: Vec<BlockKey> = system.iter().chain(&tail).copied().collect();
    assert_eq!(replica.depth(&holder("w0"), &prompt), 5199);
    let view = replica.indexer.view();
    assert!((view.agreement() - 1.0).abs() < 1e-9);
    let known = view.holder(&holder("w0")).unwrap();
    assert_eq!((known.running, known.waiting, known.coverage), (3, 1, 1.0));
    assert_eq!(view.holder_of(known.id.unwrap()), Some(&holder("w0")));
    let tally = replica.replicator.tally().await.unwrap();
    // Another replica, of which there is none, and the agent.
    assert_eq!((tally.asked, tally.failed, tally.rejected, tally.lost_batches), (2, 0, 0, 0), "{tally:?}");
}

#[tokio::test(start_paused = true)]
async fn a_joining_replica_takes_from_another_and_has_it_proved_by_the_agents() {
    let bus = InMemoryBus::new();
    let names = ["w0", "w1", "w2"];
    let agents = names.map(|name| Agent::start(Arc::new(bus.attach()), name, 1));
    for (agent, first) in agents.iter().zip([0, 100_000, 200_000]) {
        agent.store(None, &keys(first, 70_000)).await;
    }
    let cards = Cards::of(&[]);
    cards.set(&names.map(|name| (name, 1)));
    let theirs = bus.attach();
    let first = Replica::start("peer-first", &theirs, &cards, Limits::default()).await;
    for (name, agent) in names.iter().zip(&agents) {
        first.equals(name, agent, 3 * SECOND).await;
    }
    assert_eq!(first.replicator.tally().await.unwrap().from_peers, 0, "there was nobody to take from");
    // What the first replica misses from here on, the agents add.
    theirs.set_link(Link::Down);
    agents[1].store(None, &keys(300_000, 10)).await;
    theirs.set_link(Link::Up);
    let second = Replica::named(2, "peer-second", &bus.attach(), &cards, Limits::default()).await;
    for (name, agent) in names.iter().zip(&agents) {
        second.equals(name, agent, 3 * SECOND).await;
    }
    let tally = second.replicator.tally().await.unwrap();
    assert_eq!(tally.from_peers, 3, "{tally:?}");
    assert!(second.indexer.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_replica_gives_nothing_that_it_does_not_know_to_be_right() {
    let bus = InMemoryBus::new();
    let agent = Agent::start(Arc::new(bus.attach()), "w0", 1);
    agent.store(None, &keys(0, 100)).await;
    let (life, next) = (Incarnation { started_ms: 1, nonce: 7 }, Incarnation { started_ms: 2, nonce: 7 });
    let replica = Replica::start("withholds", &bus.attach(), &Cards::of(&["w0"]), Limits::default()).await;
    let withheld = replica.indexer.copy(holder("w0"), life).await.unwrap();
    assert_eq!(withheld, Err(Withheld::NotProven), "it knows nothing yet");
    replica.equals("w0", &agent, 3 * SECOND).await;
    let copied = replica.indexer.copy(holder("w0"), life).await.unwrap().unwrap();
    assert_eq!((copied.seq, copied.digest.len(), copied.digest.fold()), (1, 100, agent.stand().digest));
    let withheld = replica.indexer.copy(holder("w0"), next).await.unwrap();
    assert_eq!(withheld, Err(Withheld::OtherLife { present: life }));
    // A gap that nobody closes: it repairs, and gives nothing meanwhile.
    drop(agent);
    let delta = membership::Delta {
        scheme: identity::SCHEME.to_owned(),
        model: model(),
        worker: holder("w0").worker,
        rank: holder("w0").rank,
        incarnation: life,
        seq: 9,
        changes: vec![membership::Change::Cleared],
    };
    let subject = wire::subject::kv(NAMESPACE, &model(), &holder("w0"));
    let payload = wire::kv::encode_delta(&delta).unwrap();
    bus.publish(Message { subject, payload, ..Message::default() }).await.unwrap();
    let repairs = |view: &IndexView| {
        view.holder(&holder("w0"))
            .is_some_and(|known| matches!(known.state, Phase::Repairing | Phase::Quarantined))
    };
    timeout(5 * SECOND, replica.indexer.wait_for(repairs)).await.unwrap();
    assert_eq!(replica.indexer.copy(holder("w0"), life).await.unwrap(), Err(Withheld::NotProven));
}

#[tokio::test(start_paused = true)]
async fn replicas_agree_soon_after_a_lossy_bus_heals() {
    for seed in 0..10 {
        let bus = InMemoryBus::new();
        let agents =
            [Agent::start(Arc::new(bus.attach()), "w0", 1), Agent::start(Arc::new(bus.attach()), "w1", 1)];
        let cards = Cards::of(&["w0", "w1"]);
        let left =
            Replica::start(&format!("lossy-left-{seed}"), &bus.attach(), &cards, Limits::default()).await;
        let right =
            Replica::start(&format!("lossy-right-{seed}"), &bus.attach(), &cards, Limits::default()).await;
        let (drop, delay) = (200, Duration::from_millis(30));
        bus.set_faults(Faults {
            seed,
            drop_permille: drop,
            duplicate_permille: 100,
            reorder_permille: 200,
            delay_max: delay,
        });
        for step in 0..600 {
            for (number, agent) in (0_u64..).zip(&agents) {
                let chain = keys(step * 100 + number * 1_000_000, 20);
                agent.store(None, &chain).await;
                if step % 3 == 0 {
                    agent.remove(chain[19]).await;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
        bus.set_faults(Faults::default());
        let healed = Instant::now();
        for replica in [&left, &right] {
            replica.equals("w0", &agents[0], 5 * SECOND).await;
            replica.equals("w1", &agents[1], 5 * SECOND).await;
        }
        assert!(healed.elapsed() <= 5 * SECOND, "seed {seed} took {:?}", healed.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn killing_any_actor_leaves_the_index_serving() {
    let bus = InMemoryBus::new();
    let agent = Agent::start(Arc::new(bus.attach()), "w0", 1);
    let system = keys(0, 3000);
    agent.store(None, &system).await;
    let replica = Replica::start("killed", &bus, &Cards::of(&["w0"]), Limits::default()).await;
    replica.equals("w0", &agent, 3 * SECOND).await;
    for (round, victim) in (1_u64..).zip(["indexer/m", "replicator/m", "supervisor", "indexer/m"]) {
        assert!(replica.node.kill(victim));
        agent.store(None, &keys(round * 100_000, 10)).await;
        for _ in 0..40 {
            sleep(Duration::from_millis(50)).await;
            assert_eq!(replica.depth(&holder("w0"), &system), 3000, "after {victim} died");
        }
        replica.equals("w0", &agent, 10 * SECOND).await;
        assert_eq!(replica.depth(&holder("w0"), &keys(round * 100_000, 10)), 10);
        assert!(replica.indexer.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_replica_keeps_what_it_had_and_agrees_within_five_seconds_of_healing() {
    let bus = InMemoryBus::new();
    let agent = Agent::start(Arc::new(bus.attach()), "w0", 1);
    let (before, after) = (keys(0, 100), keys(1000, 100));
    agent.store(None, &before).await;
    let ours = bus.attach();
    let replica = Replica::start("cut", &ours, &Cards::of(&["w0"]), Limits::default()).await;
    replica.equals("w0", &agent, 3 * SECOND).await;
    ours.set_link(Link::Down);
    agent.store(None, &after).await;
    sleep(30 * SECOND).await;
    assert_eq!(replica.depth(&holder("w0"), &before), 100);
    ours.set_link(Link::Up);
    replica.equals("w0", &agent, 5 * SECOND).await;
    assert_eq!(replica.depth(&holder("w0"), &after), 100);
}

#[tokio::test(start_paused = true)]
async fn a_new_engine_life_voids_the_old_and_a_dead_agent_leaves() {
    let bus = InMemoryBus::new();
    let cards = Cards::of(&["w0"]);
    let replica = Replica::start("lives", &bus, &cards, Limits::default()).await;
    let chain = keys(0, 100);
    let agent = Agent::start(Arc::new(bus.attach()), "w0", 1);
    agent.store(None, &chain).await;
    replica.equals("w0", &agent, 3 * SECOND).await;
    drop(agent);
    let agent = Agent::start(Arc::new(bus.attach()), "w0", 2);
    replica.equals("w0", &agent, 3 * SECOND).await;
    assert_eq!(replica.depth(&holder("w0"), &chain), 0);
    agent.store(None, &chain).await;
    replica.equals("w0", &agent, 3 * SECOND).await;
    // A card that names a later life voids this one before anything else is heard.
    cards.set(&[("w0", 3)]);
    replica.indexer.wait_for(|view| view.holder(&holder("w0")).is_some_and(|known| known.blocks == 0)).await;
    assert_eq!(replica.depth(&holder("w0"), &chain), 0);
    // Without card and beats it is forgotten.
    cards.set(&[]);
    drop(agent);
    timeout(90 * SECOND, replica.indexer.wait_for(|view| view.holders().count() == 0)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_without_room_is_refused_and_the_others_agree() {
    let bus = InMemoryBus::new();
    let small = Agent::start(Arc::new(bus.attach()), "small", 1);
    let large = Agent::start(Arc::new(bus.attach()), "large", 1);
    small.store(None, &keys(0, 100)).await;
    large.store(None, &keys(10_000, 5000)).await;
    let limits = Limits { holders_max: 16, blocks_max: 2000 };
    let replica = Replica::start("refused", &bus, &Cards::of(&["small", "large"]), limits).await;
    replica.equals("small", &small, 5 * SECOND).await;
    let refused =
        |view: &IndexView| view.holder(&holder("large")).is_some_and(|known| known.state == Phase::Refused);
    let view = timeout(5 * SECOND, replica.indexer.wait_for(refused)).await.unwrap();
    assert!((view.agreement() - 1.0).abs() < 1e-9);
    assert!(replica.indexer.is_ready());
    assert_eq!(replica.depth(&holder("large"), &keys(10_000, 5000)), 0);
    // Growing past the limit refuses as well, and the others stay.
    small.store(keys(0, 100).last().copied(), &keys(500, 300)).await;
    replica.equals("small", &small, 5 * SECOND).await;
    assert!(replica.indexer.stats().await.unwrap().blocks <= 2000);
}

#[tokio::test(start_paused = true)]
async fn readiness_does_not_wait_for_ever() {
    let bus = InMemoryBus::new();
    let replica = Replica::start("waits", &bus, &Cards::of(&["absent"]), Limits::default()).await;
    sleep(9 * SECOND).await;
    assert!(!replica.indexer.is_ready());
    sleep(2 * SECOND).await;
    assert!(replica.indexer.is_ready());
}
