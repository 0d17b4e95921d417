//! The fleet as leases, beats, probes and proxies make it.

use identity::WorkerId;
use membership::card::State;
use membership::presence::{Credit, Routable};
use ports::engine::Endpoint;
use ports::engine::memory::Reply;
use ports::registry::Registry;

use crate::town::{Town, card, entry, model, pass};

fn state(town: &Town, worker: &str) -> Option<&'static str> {
    town.directory.fleet().worker(&WorkerId::new(worker)).map(|worker| worker.state())
}

#[tokio::test(start_paused = true)]
async fn cards_come_change_and_leave() {
    let town = Town::new("directory-cards").await;
    let mut alias = card("w0");
    alias.aliases = vec![identity::ModelName::new("small")];
    alias.adapters = vec!["french".to_owned()];
    alias.state = State::Starting;
    let lease = town.open(&alias).await;
    let fleet = town.directory.fleet();
    assert_eq!((fleet.seats(&model()).len(), fleet.takes_requests(&model())), (1, false));
    assert_eq!(fleet.served("small").map(|it| (it.model.clone(), it.adapter.as_str())), Some((model(), "")));
    assert_eq!(fleet.served("french").map(|it| it.adapter.as_str()), Some("french"));
    assert_eq!(fleet.served("other"), None);
    let ready = membership::Card { state: State::Ready, ..alias };
    lease.update(entry(&ready).value).await.unwrap();
    town.wait_for(|fleet| fleet.takes_requests(&model())).await;
    let draining = membership::Card { state: State::Draining, ..ready };
    lease.update(entry(&draining).value).await.unwrap();
    town.wait_for(|_| state(&town, "w0") == Some("draining")).await;
    assert!(!town.directory.fleet().takes_requests(&model()));
    lease.revoke().await.unwrap();
    town.wait_for(|fleet| fleet.workers().len() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_tried_by_load_and_then_forgotten() {
    let town = Town::new("directory-lease").await;
    let _lease = town.open(&card("w0")).await;
    town.registry.expire(&entry(&card("w0")).key);
    pass(6_000).await;
    let fleet = town.directory.fleet();
    let standing = fleet.worker(&WorkerId::new("w0")).unwrap().standing;
    assert_eq!((standing.routable, standing.credit), (Routable::ByLoad, Credit::None));
    town.wait_for(|fleet| fleet.workers().len() == 0).await;
    assert!((30_000..32_000).contains(&u64::try_from(town.clock.now().as_millis()).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn beats_keep_a_worker_without_lease() {
    let town = Town::new("directory-beats").await;
    let _lease = town.open(&card("w0")).await;
    town.registry.expire(&entry(&card("w0")).key);
    for _ in 0..60 {
        let worker = WorkerId::new("w0");
        town.directory.heard(vec![actors::Pulse { worker, beat_at: town.clock.now(), engine_healthy: true }]);
        pass(1_000).await;
    }
    assert_eq!(state(&town, "w0"), Some("ready"));
}

#[tokio::test(start_paused = true)]
async fn a_refusal_counts_at_once_and_a_probe_heals() {
    let town = Town::new("directory-refusal").await;
    let _lease = town.open(&card("w0")).await;
    let endpoint = Endpoint::parse(&card("w0").endpoint).unwrap();
    town.engine
        .serve(&endpoint, |_| Reply { then: ports::engine::memory::Then::Refuse, ..Reply::events(&[]) });
    town.directory.refused(&WorkerId::new("w0"));
    town.wait_for(|_| state(&town, "w0") == Some("down")).await;
    pass(5_000).await;
    assert_eq!(state(&town, "w0"), Some("down"));
    town.engine.serve(&endpoint, |_| Reply::json(http::StatusCode::OK, "{}"));
    town.wait_for(|_| state(&town, "w0") != Some("down")).await;
}

#[tokio::test(start_paused = true)]
async fn the_view_outlives_the_actor_and_an_unreachable_registry() {
    let town = Town::new("directory-restart").await;
    let _first = town.open(&card("w0")).await;
    assert!(town.node.kill("directory/test"));
    assert_eq!(state(&town, "w0"), Some("ready"));
    let second =
        town.registry.register(entry(&card("w1")), std::time::Duration::from_secs(10)).await.unwrap();
    town.wait_for(|fleet| fleet.workers().len() == 2).await;
    town.registry.close();
    pass(3_000).await;
    assert_eq!(town.directory.fleet().workers().len(), 2);
    drop(second);
}

#[tokio::test(start_paused = true)]
async fn a_restart_without_registry_recalls_the_last_view() {
    let before = Town::new("directory-before").await;
    let _lease = before.open(&card("w0")).await;
    pass(5_000).await;
    let kept = ports::StateStore::load(&*before.store, "workers-test").await.unwrap().unwrap();
    assert!(!kept.is_empty());
    let after = Town::with_store("directory-after", std::sync::Arc::clone(&before.store)).await;
    let endpoint = Endpoint::parse(&card("w0").endpoint).unwrap();
    after.engine.serve(&endpoint, |_| Reply::json(http::StatusCode::OK, "{}"));
    after.wait_for(|_| state(&after, "w0") == Some("suspect")).await;
    let worker = WorkerId::new("w0");
    after.directory.heard(vec![actors::Pulse { worker, beat_at: after.clock.now(), engine_healthy: true }]);
    after.wait_for(|_| state(&after, "w0") == Some("ready")).await;
}
