//! Every decision against its post-conditions, and against a naive oracle.

use identity::{Holder, MediaKey, Rank, WorkerId};
use placement::{
    Candidate, Limits, Load, MediaRouting, NearMedia, Policy, Rates, Reason, RoutingRequest, Standing, Turn,
    Wanted, Why, Work, cost, near_limit, place,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct World {
    routing: RoutingRequest,
    holders: Vec<Spec>,
    policy: Policy,
    direct: Option<usize>,
    session: Option<u64>,
    turn: Turn,
    media_bytes: u64,
}

#[derive(Clone, Debug)]
struct Spec {
    holder: Holder,
    standing: Standing,
    matched: u32,
    pending: u32,
    near: u32,
    limits: Limits,
    load: Load,
}

impl World {
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let candidate = |spec: &Spec| Candidate {
            holder: Box::leak(Box::new(spec.holder.clone())),
            standing: spec.standing,
            block_size: 16,
            matched_blocks: spec.matched,
            pending_blocks: spec.pending,
            computing_blocks: spec.pending / 2,
            doubt: None,
            near: NearMedia {
                items: u32::from(spec.near > 0),
                tokens: spec.near,
                coming_tokens: spec.near / 3,
                fresh: spec.near % 2 == 1,
                lacks_payload_free: false,
            },
            limits: spec.limits,
            adapters: &[],
            rates: Rates::default(),
            load: spec.load,
        };
        self.holders.iter().map(candidate).collect()
    }

    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            direct: self.direct.and_then(|at| self.holders.get(at)).map(|it| (&it.holder.worker, None)),
            session: self.session,
            media_bytes: self.media_bytes,
            first_media_token: (self.routing.mm_routing_info.total_image_tokens > 0).then_some(40),
            ..Wanted::new(&self.routing, self.policy)
        }
    }
}

fn standings() -> impl Strategy<Value = Standing> {
    prop_oneof![
        6 => Just(Standing::Ready),
        1 => Just(Standing::Draining),
        1 => Just(Standing::Starting),
        1 => Just(Standing::Unreachable),
        1 => Just(Standing::Quarantined),
    ]
}

fn loads() -> impl Strategy<Value = Load> {
    (0_u32..6, 0_u32..4, 0_u64..3000, 0_u64..1000, 0.0_f64..1.2).prop_map(
        |(in_flight, more, prefill, media, usage)| Load {
            in_flight,
            active: in_flight + more,
            prefill_tokens: prefill,
            media_tokens: media,
            decode_blocks: 0,
            cached_blocks: prefill / 4,
            kv_usage: usage,
        },
    )
}

fn specs() -> impl Strategy<Value = Spec> {
    let limits =
        (prop_oneof![Just(0_u32), Just(900)], 0_u32..3, 0_u32..5, prop_oneof![Just(0_u32), Just(500)]);
    (standings(), 0_u32..80, 0_u32..10, 0_u32..500, limits, loads()).prop_map(
        |(standing, matched, pending, near, limits, load)| {
            let (context_tokens_max, media_items_max, in_flight_max, kv_blocks) = limits;
            let limits = Limits { context_tokens_max, media_items_max, in_flight_max, kv_blocks };
            let holder = Holder { worker: WorkerId::new(""), rank: Rank(0) };
            Spec { holder, standing, matched, pending, near, limits, load }
        },
    )
}

fn worlds() -> impl Strategy<Value = World> {
    let media = prop::collection::vec((any::<u64>(), 1_u32..300), 0..4);
    let chance = (any::<u64>(), any::<u64>());
    let routed = (prop::option::weighted(0.2, 0_usize..8), prop::option::weighted(0.2, any::<u64>()));
    let circumstances = (routed, chance, 0_u64..1_000_000);
    let policies = prop::sample::select(Policy::ALL.to_vec());
    (prop::collection::vec(specs(), 0..8), 1_u32..1200, media, policies, circumstances).prop_map(
        |(mut holders, prompt_tokens, media, policy, ((direct, session), (seed, round), media_bytes))| {
            for (at, spec) in holders.iter_mut().enumerate() {
                spec.holder.worker = WorkerId::new(&format!("w{at}"));
            }
            let mut image_multiset: Vec<(MediaKey, u32)> =
                media.into_iter().map(|(key, tokens)| (MediaKey::new(key), tokens)).collect();
            image_multiset.sort_unstable();
            let total_image_tokens = image_multiset.iter().map(|it| it.1).sum::<u32>().min(prompt_tokens);
            let mm_routing_info = MediaRouting { image_multiset, total_image_tokens };
            let routing = RoutingRequest { chains: Vec::new(), prompt_tokens, mm_routing_info };
            World { routing, holders, policy, direct, session, turn: Turn { seed, round }, media_bytes }
        },
    )
}

/// The cost rule restated as plainly as possible; `crowded` if two holders encode the request's media now.
fn naive_total(wanted: &Wanted<'_>, candidate: &Candidate<'_>, crowded: bool) -> f64 {
    let text_only = wanted.policy == Policy::KvText;
    let prompt = wanted.routing.prompt_tokens;
    let media = wanted.routing.mm_routing_info.total_image_tokens;
    let mut blocks = candidate.matched_blocks + candidate.pending_blocks;
    if text_only && let Some(first) = wanted.first_media_token {
        blocks = blocks.min(first / 16);
    }
    blocks = blocks.min((prompt - 1) / 16);
    let computed = prompt - blocks * 16;
    let near = if text_only { 0 } else { candidate.near.tokens };
    let far = media.saturating_sub(near);
    let (rates, load) = (candidate.rates, candidate.load);
    let shared =
        u64::from(candidate.computing_blocks.min(blocks.saturating_sub(candidate.matched_blocks)) * 16);
    let coming = if text_only { 0 } else { u64::from(candidate.near.coming_tokens) };
    let mut total = load.prefill_tokens.saturating_sub(shared) as f64 * rates.prefill_ms;
    total += load.media_tokens.saturating_sub(coming) as f64 * rates.encode_ms;
    if media > 0 {
        total += wanted.media_bytes as f64 * f64::from(far) / f64::from(media) * rates.fetch_ms;
    }
    let fresh = !text_only && candidate.near.fresh;
    let times = if crowded && !fresh { 64.0 } else { 1.0 };
    total += f64::from(far.min(computed)) * rates.encode_ms * times;
    total += f64::from(computed) * rates.prefill_ms;
    total += f64::from(load.active) * rates.decode_ms;
    if candidate.limits.kv_blocks > 0 {
        let capacity = f64::from(candidate.limits.kv_blocks);
        let needed = f64::from(prompt.div_ceil(16) - blocks) / capacity;
        let over = ((load.kv_usage.min(1.0) + needed - 0.9) / 0.1).clamp(0.0, 10.0);
        total += over * f64::from(prompt) * rates.prefill_ms;
        let fresh = u64::from(prompt.div_ceil(16) - blocks);
        let beyond = (load.cached_blocks + fresh).saturating_sub(u64::from(candidate.limits.kv_blocks));
        total += 0.25 * (beyond.min(fresh) * 16) as f64 * rates.prefill_ms;
    }
    total
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn decisions_uphold_their_post_conditions(world in worlds()) {
        let (candidates, wanted) = (world.candidates(), world.wanted());
        let Ok(decision) = place(&wanted, &candidates, world.turn) else {
            prop_assert!(candidates.iter().all(|it| it.why_not(&wanted).is_some()));
            return Ok(());
        };
        prop_assert!(decision.chose_eligible());
        prop_assert!(decision.terms_are_sound());
        prop_assert!(decision.leaves_a_token(world.routing.prompt_tokens));
        prop_assert!(decision.reason_is_true());
        prop_assert_eq!(decision.appraisals.len(), candidates.len());
        let by_cost = matches!(world.policy, Policy::Kv | Policy::KvText);
        if by_cost && decision.reason != Reason::Affinity {
            prop_assert!(decision.chose_near_optimum());
        }
        if let Some((worker, _)) = wanted.direct {
            prop_assert_eq!(&decision.choice().holder.worker, worker);
        }
        prop_assert_eq!(place(&wanted, &candidates, world.turn), Ok(decision));
    }

    #[test]
    fn finds_the_optimum_of_a_naive_search(world in worlds()) {
        let mut world = world;
        world.session = None;
        world.policy = if world.turn.round % 2 == 0 { Policy::Kv } else { Policy::KvText };
        let (candidates, wanted) = (world.candidates(), world.wanted());
        let encoding = candidates.iter().filter(|it| it.near.fresh).count();
        let encoding = if world.policy == Policy::Kv { encoding } else { 0 };
        let eligible: Vec<_> = candidates.iter().filter(|it| it.why_not(&wanted).is_none()).collect();
        match place(&wanted, &candidates, world.turn) {
            Err(unplaced) => {
                prop_assert!(eligible.is_empty() && unplaced.appraisals.len() == candidates.len());
            }
            Ok(decision) => {
                let mut exempt = 0;
                let mut lowest = f64::INFINITY;
                for (candidate, it) in candidates.iter().zip(&decision.appraisals).filter(|(_, it)| it.eligible()) {
                    let [plain, over] = [false, true].map(|crowded| naive_total(&wanted, candidate, crowded));
                    let is = |total: f64| (it.cost.total() - total).abs() < 1e-6;
                    prop_assert!(is(plain) || (encoding > 0 && is(over)));
                    exempt += usize::from(over > plain && !is(over));
                    lowest = lowest.min(it.cost.total());
                }
                prop_assert!(encoding == 0 || exempt <= 2_usize.saturating_sub(encoding));
                let chosen = decision.choice().cost.total();
                prop_assert!(chosen <= near_limit(lowest) + 1e-6, "{chosen} of {lowest}");
            }
        }
    }

    #[test]
    fn frontends_mean_the_same_second_encoder(world in worlds(), other_loads in worlds()) {
        let wanted = world.wanted();
        let (mut here, mut there) = (world.candidates(), world.candidates());
        for (candidate, other) in there.iter_mut().zip(other_loads.candidates()) {
            candidate.load = other.load;
        }
        for candidates in [&mut here, &mut there] {
            for (index, candidate) in candidates.iter_mut().enumerate() {
                candidate.near.fresh = index == 0;
            }
        }
        let decisions = [&here, &there].map(|candidates| place(&wanted, candidates, world.turn));
        let [Ok(here), Ok(there)] = decisions else { return Ok(()) };
        if here.appraisals.iter().zip(&there.appraisals).any(|(one, two)| one.eligible() != two.eligible()) {
            return Ok(());
        }
        for (one, two) in here.appraisals.iter().zip(&there.appraisals) {
            prop_assert!((one.cost.encode - two.cost.encode).abs() < 1e-6, "{one:?} {two:?}");
        }
    }

    #[test]
    fn more_cache_never_costs_more(world in worlds(), more in 1_u32..50) {
        let wanted = world.wanted();
        for candidate in world.candidates() {
            let cold = Candidate { pending_blocks: 0, computing_blocks: 0, ..candidate.clone() };
            let warmer = Candidate { matched_blocks: cold.matched_blocks + more, ..cold.clone() };
            let price = |it: &Candidate<'_>| cost(&wanted, it, &Work::of(&wanted, it)).total();
            prop_assert!(price(&warmer) <= price(&cold) + 1e-9);
        }
    }

    #[test]
    fn frontends_send_a_new_image_to_one_holder(world in worlds(), seeds in (any::<u64>(), any::<u64>())) {
        let mut world = world;
        (world.session, world.direct, world.policy) = (None, None, Policy::Kv);
        prop_assume!(!world.routing.mm_routing_info.image_multiset.is_empty());
        for spec in &mut world.holders {
            (spec.near, spec.matched, spec.pending) = (0, 0, 0);
        }
        let (candidates, wanted) = (world.candidates(), world.wanted());
        let decide = |seed| place(&wanted, &candidates, Turn { seed, round: 0 }).map(|it| it.chosen).ok();
        prop_assert_eq!(decide(seeds.0), decide(seeds.1));
    }
}

fn routing(prompt_tokens: u32) -> RoutingRequest {
    RoutingRequest { prompt_tokens, ..RoutingRequest::default() }
}

fn idle<'a>(holder: &'a Holder, adapters: &'a [String]) -> Candidate<'a> {
    Candidate {
        holder,
        standing: Standing::Ready,
        block_size: 16,
        matched_blocks: 0,
        pending_blocks: 0,
        computing_blocks: 0,
        doubt: None,
        near: NearMedia::default(),
        limits: Limits::default(),
        adapters,
        rates: Rates::default(),
        load: Load::default(),
    }
}

#[test]
fn equals_are_sampled_and_turns_are_taken() {
    let holders: Vec<Holder> =
        (0..4).map(|at| Holder { worker: WorkerId::new(&format!("w{at}")), rank: Rank(0) }).collect();
    let candidates: Vec<Candidate<'_>> = holders.iter().map(|holder| idle(holder, &[])).collect();
    let request = routing(500);
    for policy in Policy::ALL {
        let mut hits = [0_u32; 4];
        for round in 0..400 {
            let turn = Turn { seed: round * 7919, round };
            let decision = place(&Wanted::new(&request, policy), &candidates, turn).unwrap();
            assert_eq!(decision.reason, Reason::Load);
            hits[decision.chosen] += 1;
        }
        assert!(hits.iter().all(|count| (60..140).contains(count)), "{policy}: {hits:?}");
    }
}

#[test]
fn each_reason_is_named() {
    let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(1) };
    let other = WorkerId::new("w1");
    let request = RoutingRequest {
        mm_routing_info: MediaRouting {
            image_multiset: vec![(MediaKey::new(1), 9); 3],
            total_image_tokens: 27,
        },
        ..routing(100)
    };
    let (candidate, wanted) = (idle(&holder, &[]), Wanted::new(&request, Policy::Kv));
    let check = |candidate: Candidate<'_>, wanted: &Wanted<'_>, expected: Option<Why>| {
        assert_eq!(candidate.why_not(wanted), expected);
    };
    let limited = |limits: Limits| Candidate { limits, ..candidate.clone() };
    check(candidate.clone(), &wanted, None);
    check(limited(Limits { context_tokens_max: 100, ..Limits::default() }), &wanted, Some(Why::Context));
    check(limited(Limits { context_tokens_max: 101, ..Limits::default() }), &wanted, None);
    check(limited(Limits { media_items_max: 2, ..Limits::default() }), &wanted, Some(Why::MediaCount));
    check(Candidate { standing: Standing::Draining, ..candidate.clone() }, &wanted, Some(Why::Draining));
    check(
        Candidate { standing: Standing::Quarantined, ..candidate.clone() },
        &wanted,
        Some(Why::Quarantined),
    );
    let busy = Load { in_flight: 2, ..Load::default() };
    let full = Limits { in_flight_max: 2, ..Limits::default() };
    check(Candidate { load: busy, limits: full, ..candidate.clone() }, &wanted, Some(Why::Busy));
    check(candidate.clone(), &Wanted { adapter: "lora", ..wanted.clone() }, Some(Why::Adapter));
    check(
        candidate.clone(),
        &Wanted { direct: Some((&other, None)), ..wanted.clone() },
        Some(Why::NotRequested),
    );
    let rank = |rank| Wanted { direct: Some((&holder.worker, Some(Rank(rank)))), ..wanted.clone() };
    check(candidate.clone(), &rank(0), Some(Why::NotRequested));
    check(candidate.clone(), &rank(1), None);
    let excluded = [holder.worker.clone()];
    check(candidate.clone(), &Wanted { excluded: &excluded, ..wanted.clone() }, Some(Why::Excluded));
    let lacking = NearMedia { lacks_payload_free: true, ..NearMedia::default() };
    check(Candidate { near: lacking, ..candidate.clone() }, &wanted, Some(Why::MediaNotResident));
}

#[test]
fn a_full_cache_is_worth_less_than_an_empty_one() {
    let holders = ["full", "empty"].map(|name| Holder { worker: WorkerId::new(name), rank: Rank(0) });
    let limits = Limits { kv_blocks: 100, ..Limits::default() };
    let mut candidates =
        holders.iter().map(|holder| Candidate { limits, ..idle(holder, &[]) }).collect::<Vec<_>>();
    candidates[0].load.cached_blocks = 95;
    let request = routing(480);
    let chosen = |candidates: &[Candidate<'_>]| {
        place(&Wanted::new(&request, Policy::Kv), candidates, Turn::default()).unwrap().chosen
    };
    candidates[0].matched_blocks = 1;
    assert_eq!(chosen(&candidates), 1, "one block at hand is not worth 24 evicted");
    candidates[0].matched_blocks = 10;
    assert_eq!(chosen(&candidates), 0, "ten are");
}

#[test]
fn sessions_stay_and_return() {
    let holders: Vec<Holder> =
        (0..5).map(|at| Holder { worker: WorkerId::new(&format!("w{at}")), rank: Rank(0) }).collect();
    let mut candidates: Vec<Candidate<'_>> = holders.iter().map(|holder| idle(holder, &[])).collect();
    let request = routing(100);
    let wanted = Wanted { session: Some(42), ..Wanted::new(&request, Policy::Kv) };
    let home = place(&wanted, &candidates, Turn::default()).unwrap();
    assert_eq!(home.reason, Reason::Affinity);
    let at = home.chosen;
    candidates[(at + 1) % 5].standing = Standing::Unreachable;
    assert_eq!(place(&wanted, &candidates, Turn { seed: 9, round: 9 }).unwrap().chosen, at, "another's loss");
    candidates[at].standing = Standing::Unreachable;
    assert_ne!(place(&wanted, &candidates, Turn::default()).unwrap().chosen, at);
}
