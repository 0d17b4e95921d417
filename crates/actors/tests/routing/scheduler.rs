//! Requests placed, waiting, and given back; the actor killed in between.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use actors::scheduler::Error;
use actors::{Assignment, MediaListener as _, ScheduleRequest, SchedulerHandle, Waiting};
use identity::{BlockKey, MediaId, MediaKey, Rank, WorkerId};
use membership::card::Limits;
use membership::{Card, MediaRun};
use placement::{
    Class, Feature, MediaRouting, Policy, QueueLimits, Reason, RoutingRequest, Ruling, Verdict, Why,
};
use tokio::task::JoinSet;

use crate::town::{Town, card, holder, pass, prompt};

fn ask(routing: RoutingRequest) -> ScheduleRequest {
    ScheduleRequest::new(Arc::new(routing), Policy::Kv)
}

fn with_image(name: u64, image: u64) -> RoutingRequest {
    let mm_routing_info =
        MediaRouting { image_multiset: vec![(MediaKey::new(image), 800)], total_image_tokens: 800 };
    RoutingRequest { mm_routing_info, ..prompt(name, 1000) }
}

fn narrow(worker: &str, in_flight_max: u32) -> Card {
    Card { limits: Limits { in_flight_max, ..Limits::default() }, ..card(worker) }
}

async fn place(scheduler: &SchedulerHandle, request: ScheduleRequest) -> Assignment {
    scheduler.schedule(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_follow_their_prefix() {
    let town = Town::new("scheduler-prefix").await;
    let _leases = [town.open(&card("w0")).await, town.open(&card("w1")).await, town.open(&card("w2")).await];
    let (scheduler, ledger) = town.scheduler(QueueLimits::default()).await;
    town.index.matched("w1", 20);
    let assignment = place(&scheduler, ask(prompt(1, 400))).await;
    assert_eq!((assignment.worker_id(), assignment.decision.reason), (&WorkerId::new("w1"), Reason::Kv));
    assert_eq!(assignment.predicted().cached_tokens, 320);
    let gauges = ledger.gauges(&holder("w1"));
    assert_eq!((gauges.active_requests, gauges.prefill_tokens, gauges.decode_blocks), (1, 80, 25));
    assignment.reservation.first_token();
    assert_eq!(ledger.gauges(&holder("w1")).prefill_tokens, 0);
    assignment.reservation.finish();
    assert!(ledger.balances().iter().all(|balance| balance.gauges.is_idle()));
    let decision = scheduler.explain(&ask(prompt(1, 400))).await.unwrap().unwrap();
    let choice = decision.choice();
    assert_eq!((decision.appraisals.len(), choice.work.cached_blocks, choice.pending_blocks), (3, 24, 4));
    assert!(ledger.balances().iter().all(|balance| balance.gauges.is_idle()), "explain reserves nothing");
}

#[tokio::test(start_paused = true)]
async fn media_that_an_engine_had_draw_requests_to_it() {
    let town = Town::new("scheduler-told-media").await;
    let _leases = [town.open(&card("w0")).await, town.open(&card("w1")).await, town.open(&card("w2")).await];
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    let run = MediaRun { id: MediaId::new("cat"), first_key: BlockKey::new(1), tokens: 800 };
    // Of one that nobody can be placed on nothing is kept.
    scheduler.computed(&holder("w9"), &[&run]);
    scheduler.computed(&holder("w2"), &[&run]);
    let request = ask(with_image(3, run.id.key().get()));
    let decision = scheduler.explain(&request).await.unwrap().unwrap();
    assert_eq!((decision.choice().holder.clone(), decision.choice().media_resident), (holder("w2"), 1));
    let elsewhere = decision.appraisals.iter().filter(|it| it.holder != holder("w2"));
    assert!(elsewhere.clone().count() == 2 && elsewhere.clone().all(|it| it.media_resident == 0));
    // Another engine in its place has nothing of it.
    town.index.life("w2", 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    scheduler.computed(&holder("w2"), &[&run]);
    town.index.life("w2", 2);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let decision = scheduler.explain(&request).await.unwrap().unwrap();
    assert!(decision.appraisals.iter().all(|it| it.media_resident == 0));
}

#[tokio::test(start_paused = true)]
async fn a_burst_on_a_new_image_encodes_it_once() {
    let town = Town::new("scheduler-burst").await;
    let _leases = [town.open(&card("w0")).await, town.open(&card("w1")).await, town.open(&card("w2")).await];
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    let mut live = Vec::new();
    for _ in 0..20 {
        live.push(place(&scheduler, ask(with_image(1, 9))).await);
    }
    let encodes = live.iter().filter(|it| it.decision.choice().work.encode_tokens > 0).count();
    let workers: HashSet<&WorkerId> = live.iter().map(Assignment::worker_id).collect();
    assert_eq!((encodes, workers.len()), (1, 1));
}

/// Fifty requests with one small image, placed before any of it is encoded: alike, or each with a prompt of its own.
async fn encodes_of_a_burst(name: &'static str, alike: bool) -> usize {
    let town = Town::new(name).await;
    let mut leases = Vec::new();
    for worker in 0..6 {
        leases.push(town.open(&card(&format!("w{worker}"))).await);
    }
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    let mut live = Vec::new();
    for number in 0..50 {
        let mm_routing_info =
            MediaRouting { image_multiset: vec![(MediaKey::new(9), 64)], total_image_tokens: 64 };
        let name = if alike { 1 } else { number };
        live.push(place(&scheduler, ask(RoutingRequest { mm_routing_info, ..prompt(name, 120) })).await);
    }
    live.iter().filter(|it| it.decision.choice().work.encode_tokens > 0).count()
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_any_kind_encodes_a_small_image_at_most_twice() {
    assert!(encodes_of_a_burst("scheduler-alike", true).await <= 2);
    assert!(encodes_of_a_burst("scheduler-unlike", false).await <= 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_dispatch_leaves_no_credit() {
    let town = Town::new("scheduler-failure").await;
    let _leases = [town.open(&card("w0")).await, town.open(&card("w1")).await];
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    drop(place(&scheduler, ask(with_image(1, 9))).await);
    let again = place(&scheduler, ask(with_image(1, 9))).await;
    assert_eq!(again.decision.choice().work.cached_blocks, 0);
    assert!(again.decision.choice().work.encode_tokens > 0);
    again.reservation.first_token();
    drop(again);
    let third = place(&scheduler, ask(with_image(1, 9))).await;
    assert_eq!(
        third.decision.choice().work.cached_tokens,
        62 * 16,
        "on its way until the delta must have come"
    );
    drop(third);
    pass(3_000).await;
    let fourth = place(&scheduler, ask(with_image(1, 9))).await;
    assert_eq!(fourth.decision.choice().work.cached_blocks, 0, "the delta has not come");
    assert_eq!(fourth.decision.choice().media_resident, 1);
}

#[tokio::test(start_paused = true)]
async fn blocks_that_came_and_went_are_not_expected() {
    let town = Town::new("scheduler-confirm").await;
    let _lease = town.open(&card("w0")).await;
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    place(&scheduler, ask(prompt(1, 400))).await.reservation.finish();
    town.index.matched("w0", 25);
    pass(5).await;
    town.index.matched("w0", 10);
    let again = scheduler.explain(&ask(prompt(1, 400))).await.unwrap().unwrap();
    assert_eq!(again.choice().work.cached_blocks, 10, "stored, shown, and evicted");
}

#[tokio::test(start_paused = true)]
async fn another_engine_life_has_nothing() {
    let town = Town::new("scheduler-life").await;
    let _lease = town.open(&card("w0")).await;
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    town.index.life("w0", 1);
    pass(500).await;
    place(&scheduler, ask(with_image(1, 9))).await.reservation.finish();
    town.index.life("w0", 2);
    pass(500).await;
    let again = place(&scheduler, ask(with_image(1, 9))).await;
    assert_eq!((again.decision.choice().work.cached_blocks, again.decision.choice().media_resident), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn busy_workers_make_requests_wait_in_order() {
    let town = Town::new("scheduler-queue").await;
    let _lease = town.open(&narrow("w0", 1)).await;
    let (scheduler, _) = town.scheduler(QueueLimits { waiting_max: 2, ..QueueLimits::default() }).await;
    let first = place(&scheduler, ask(prompt(1, 100))).await;
    let (sender, mut order) = tokio::sync::mpsc::channel(8);
    let mut tasks = JoinSet::new();
    for (name, priority) in [("late", 5), ("early", -5)] {
        let (scheduler, sender) = (scheduler.clone(), sender.clone());
        let waiting = Waiting { priority, ..Waiting::default() };
        tasks.spawn(async move {
            let assignment =
                scheduler.schedule(ScheduleRequest { waiting, ..ask(prompt(2, 100)) }).await.unwrap();
            sender.send(name).await.unwrap();
            assignment.reservation.finish();
        });
        pass(1).await;
    }
    let refused = scheduler
        .schedule(ScheduleRequest {
            waiting: Waiting { priority: 9, ..Waiting::default() },
            ..ask(prompt(3, 100))
        })
        .await;
    assert!(
        matches!(refused, Err(Error::Overloaded { retry_after }) if retry_after == Duration::from_secs(1))
    );
    drop(first);
    assert_eq!((order.recv().await, order.recv().await), (Some("early"), Some("late")));
    while tasks.join_next().await.is_some() {}
    assert!(scheduler.loads().iter().all(|load| load.own.gauges.is_idle()));
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_by_deadline_and_by_giving_up() {
    let town = Town::new("scheduler-deadline").await;
    let _lease = town.open(&narrow("w0", 1)).await;
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    let first = place(&scheduler, ask(prompt(1, 100))).await;
    let started = town.clock.now();
    let waiting = Waiting { wait_max: Duration::from_millis(300), ..Waiting::default() };
    let late = scheduler.schedule(ScheduleRequest { waiting, ..ask(prompt(2, 100)) }).await;
    assert!(matches!(late, Err(Error::Overloaded { .. })));
    assert!((300..340).contains(&(town.clock.now() - started).as_millis()));
    let given_up =
        tokio::time::timeout(Duration::from_millis(50), scheduler.schedule(ask(prompt(3, 100)))).await;
    assert!(given_up.is_err());
    drop(first);
    pass(100).await;
    assert!(scheduler.loads().iter().all(|load| load.own.gauges.is_idle()), "nobody was assigned");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_served_is_told_apart() {
    let town = Town::new("scheduler-errors").await;
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    assert!(matches!(scheduler.schedule(ask(prompt(1, 10))).await, Err(Error::NoWorker { why: None })));
    let limits = Limits { context_tokens_max: 1000, ..Limits::default() };
    let _lease = town.open(&Card { limits, ..card("w0") }).await;
    let long = scheduler.schedule(ask(prompt(1, 1000))).await;
    assert!(matches!(long, Err(Error::Unservable { why: Why::Context })));
    let direct =
        |worker: &str| ScheduleRequest { direct: Some((WorkerId::new(worker), None)), ..ask(prompt(1, 10)) };
    assert!(matches!(scheduler.schedule(direct("w9")).await, Err(Error::UnknownWorker { .. })));
    assert_eq!(place(&scheduler, direct("w0")).await.decision.reason, Reason::Direct);
    let rank =
        |rank: u16| ScheduleRequest { direct: Some((WorkerId::new("w0"), Some(Rank(rank)))), ..direct("w0") };
    assert_eq!(place(&scheduler, rank(0)).await.decision.reason, Reason::Direct);
    assert!(matches!(scheduler.schedule(rank(7)).await, Err(Error::UnknownRank { rank: Rank(7), .. })));
    let payload_free = ScheduleRequest { payload_free: vec![MediaKey::new(5)], ..ask(with_image(1, 5)) };
    let missing =
        scheduler.schedule(ScheduleRequest { routing: Arc::new(prompt(1, 10)), ..payload_free }).await;
    assert!(matches!(missing, Err(Error::Unservable { why: Why::MediaNotResident })));
    let excluded = vec![WorkerId::new("w0")];
    let again = scheduler.schedule(ScheduleRequest { excluded, ..ask(prompt(1, 10)) }).await;
    assert!(matches!(again, Err(Error::NoWorker { why: Some(Why::Excluded) })));
}

#[tokio::test(start_paused = true)]
async fn prefill_of_what_does_not_stream_ends_by_time() {
    let town = Town::new("scheduler-prefill").await;
    let _lease = town.open(&card("w0")).await;
    let (scheduler, ledger) = town.scheduler(QueueLimits::default()).await;
    let assignment = place(&scheduler, ScheduleRequest { streams: false, ..ask(prompt(1, 1000)) }).await;
    assert_eq!(ledger.gauges(&holder("w0")).prefill_tokens, 1000);
    pass(90).await;
    assert_eq!(ledger.gauges(&holder("w0")).prefill_tokens, 1000);
    pass(40).await;
    let gauges = ledger.gauges(&holder("w0"));
    assert_eq!((gauges.prefill_tokens, gauges.active_requests), (0, 1), "10,000 tokens per second");
    drop(assignment);
    assert!(ledger.gauges(&holder("w0")).is_idle());
}

#[tokio::test(start_paused = true)]
async fn killing_the_scheduler_loses_no_request_and_no_count() {
    let town = Town::new("scheduler-kill").await;
    let _leases = [town.open(&narrow("w0", 4)).await, town.open(&narrow("w1", 4)).await];
    let (scheduler, ledger) = town.scheduler(QueueLimits::default()).await;
    let mut tasks = JoinSet::new();
    for name in 0..60 {
        let scheduler = scheduler.clone();
        tasks.spawn(async move {
            pass(name * 3).await;
            let assignment = scheduler.schedule(ask(prompt(name, 200))).await?;
            pass(20).await;
            assignment.reservation.first_token();
            pass(10 + name % 7).await;
            if name % 3 == 0 {
                drop(assignment);
            } else {
                assignment.reservation.finish();
            }
            Ok::<_, Error>(())
        });
    }
    for _ in 0..4 {
        pass(60).await;
        assert!(town.node.kill("scheduler/tiny"));
        let truth: u32 = ledger.balances().iter().map(|balance| balance.gauges.active_requests).sum();
        assert!(truth <= 8, "{truth} in flight");
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome.unwrap().unwrap();
    }
    assert!(ledger.balances().iter().all(|balance| balance.gauges.is_idle()));
}

#[tokio::test(start_paused = true)]
async fn frontends_do_not_compute_what_others_have_begun() {
    let town = Town::new("frontends-a").await;
    let mut leases = Vec::new();
    for worker in ["w0", "w1", "w2", "w3", "w4", "w5"] {
        leases.push(town.open(&card(worker)).await);
    }
    let (twin, third) = (town.twin("frontends-b").await, town.twin("frontends-c").await);
    for other in [&twin, &third] {
        other.wait_for(|fleet| fleet.workers().len() == 6).await;
    }
    let fronts = [town.frontend("a").await, twin.frontend("b").await, third.frontend("c").await];
    pass(1_500).await;
    let mut live = Vec::new();
    for turn in 0..48 {
        live.push(place(&fronts[turn % 3].0, ask(with_image(7, 9))).await);
        if turn % 6 == 5 {
            pass(2).await;
        }
    }
    let encodes = live.iter().filter(|it| it.decision.choice().work.encode_tokens > 200).count();
    let workers: HashSet<&WorkerId> = live.iter().map(Assignment::worker_id).collect();
    assert!(encodes <= 3 && workers.len() <= 2, "{encodes} encodes on {workers:?}");
    for assignment in live {
        assignment.reservation.finish();
    }
    let place_of = |decision: placement::Decision| decision.choice().holder.clone();
    let holders: HashSet<_> = {
        let mut holders = HashSet::new();
        for (scheduler, _) in &fronts {
            holders.insert(place_of(scheduler.explain(&ask(with_image(7, 9))).await.unwrap().unwrap()));
        }
        holders
    };
    assert!(holders.len() <= 2, "{holders:?}");
}

#[tokio::test(start_paused = true)]
async fn other_frontends_hear_of_failure_and_confirmation() {
    let town = Town::new("notices-a").await;
    let _leases = [town.open(&card("w0")).await, town.open(&card("w1")).await];
    let twin = town.twin("notices-b").await;
    twin.wait_for(|fleet| fleet.workers().len() == 2).await;
    let ((ours, _), (theirs, _)) = (town.frontend("a").await, twin.frontend("b").await);
    pass(1_500).await;
    let pending =
        |decision: &placement::Decision| decision.appraisals.iter().map(|it| it.pending_blocks).sum::<u32>();
    let first = place(&ours, ask(prompt(1, 400))).await;
    pass(5).await;
    assert_eq!(pending(&theirs.explain(&ask(prompt(1, 400))).await.unwrap().unwrap()), 24);
    drop(first);
    pass(5).await;
    assert_eq!(pending(&theirs.explain(&ask(prompt(1, 400))).await.unwrap().unwrap()), 0, "failed");
    let second = place(&ours, ask(prompt(1, 400))).await;
    let worker = second.worker_id().clone();
    pass(5).await;
    assert_eq!(pending(&theirs.explain(&ask(prompt(1, 400))).await.unwrap().unwrap()), 24);
    second.reservation.finish();
    town.index.matched(worker.as_str(), 25);
    pass(5).await;
    town.index.matched(worker.as_str(), 3);
    assert_eq!(
        pending(&theirs.explain(&ask(prompt(1, 400))).await.unwrap().unwrap()),
        0,
        "shown, then evicted"
    );
}

#[tokio::test(start_paused = true)]
async fn credit_is_withdrawn_where_predictions_keep_failing() {
    let town = Town::new("scheduler-demotion").await;
    let _lease = town.open(&card("w0")).await;
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    town.index.matched("w0", 50);
    let cached = async |routing: RoutingRequest| {
        let request = ScheduleRequest { first_media_token: Some(100), ..ask(routing) };
        scheduler.explain(&request).await.unwrap().unwrap().choice().work.cached_blocks
    };
    assert_eq!((cached(prompt(1, 1000)).await, cached(with_image(1, 9)).await), (50, 50));
    let verdict = Verdict::Mismatch(Class::MediaCount);
    for _ in 0..6 {
        scheduler.judged(Ruling { holder: holder("w0"), feature: Feature::Media, tenant: 1, verdict });
    }
    assert_eq!((cached(prompt(1, 1000)).await, cached(with_image(1, 9)).await), (50, 6), "up to the image");
    pass(61_000).await;
    assert_eq!(cached(with_image(1, 9)).await, 50);
}

#[tokio::test(start_paused = true)]
async fn blocks_of_an_engine_with_other_files_do_not_count() {
    let town = Town::new("scheduler-rendering").await;
    let mut other = card("w0");
    other.artefacts.template = "theirs".to_owned();
    let _leases = [town.open(&other).await, town.open(&card("w1")).await];
    let (scheduler, _) = town.scheduler(QueueLimits::default()).await;
    town.index.matched("w0", 50);
    let mut rendering = membership::Rendering::default();
    rendering.artefacts.template = "ours".to_owned();
    let request =
        ScheduleRequest { rendering: Some(Arc::new(rendering)), policy: Policy::Kv, ..ask(prompt(1, 1000)) };
    let decision = scheduler.explain(&request).await.unwrap().unwrap();
    let seen: Vec<_> = decision.appraisals.iter().map(|it| (it.work.cached_blocks, it.doubt)).collect();
    assert_eq!(seen, [(0, Some(placement::Doubt::OtherRendering)), (0, None)]);
    // Nor are blocks expected there of a dispatch.
    let direct = ScheduleRequest { direct: Some((WorkerId::new("w0"), None)), ..request.clone() };
    let placed = place(&scheduler, direct).await;
    pass(30).await;
    assert_eq!(scheduler.tally().pending_blocks, 0);
    drop(placed);
    // A prompt that nothing was rendered of is known to all.
    let request = ScheduleRequest { rendering: None, ..request };
    let decision = scheduler.explain(&request).await.unwrap().unwrap();
    assert_eq!((decision.choice().holder.clone(), decision.choice().work.cached_blocks), (holder("w0"), 50));
}

#[tokio::test(start_paused = true)]
async fn the_tally_counts_over_lives() {
    let town = Town::new("scheduler-tally").await;
    let _lease = town.open(&narrow("w0", 1)).await;
    let (scheduler, _) = town.scheduler(QueueLimits { waiting_max: 0, ..QueueLimits::default() }).await;
    let first = place(&scheduler, ask(prompt(1, 100))).await;
    assert!(matches!(scheduler.schedule(ask(prompt(2, 100))).await, Err(Error::Overloaded { .. })));
    pass(30).await;
    assert!(town.node.kill("scheduler/tiny"));
    drop(first);
    place(&scheduler, ask(prompt(3, 160))).await.reservation.first_token();
    pass(30).await;
    let tally = scheduler.tally();
    assert_eq!((tally.placed, tally.waited, tally.overloaded, tally.waiting), (2, 1, 1, 0));
    assert_eq!((tally.pending_blocks, tally.settling), (10, 1));
}
