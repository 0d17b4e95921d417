//! CPU time of one decision, beside a bare scan of the same candidates for the least loaded.
//!
//! `cargo bench -p placement --bench place`

use std::hint::black_box;
use std::time::Duration;

use identity::{BlockKey, Holder, MediaKey, Rank, WorkerId};
use placement::{
    Candidate, KeyChain, Limits, Load, MediaRouting, NearMedia, Pending, PendingLimits, Policy, Query, Rates,
    Residency, ResidencyLimits, RoutingRequest, Standing, Turn, Wanted, place,
};

#[expect(clippy::print_stdout, reason = "a bench speaks to its caller")]
fn main() {
    println!("{:<44} {:>12}", "one decision, 8k tokens, 4 images", "CPU µs");
    for count in [4, 16, 64, 256] {
        let world = World::new(count);
        let placed = time(20_000, |round| {
            let candidates = world.candidates();
            let turn = Turn { seed: u64::from(round), round: u64::from(round) };
            place(&Wanted::new(&world.routing, Policy::Kv), &candidates, turn)
                .map(|decision| decision.chosen)
                .ok()
        });
        let scanned = time(2_000_000, |_| {
            let loads = world.loads.iter().enumerate();
            loads.min_by_key(|(_, load)| (load.active, load.prefill_tokens)).map(|(index, _)| index)
        });
        println!("{:<44} {placed:>12.3}", format!("{count} holders: place"));
        println!("{:<44} {scanned:>12.3}", format!("{count} holders: scan for the least loaded"));
    }
}

/// Microseconds per round.
fn time<R>(rounds: u32, mut work: impl FnMut(u32) -> R) -> f64 {
    (0..rounds / 10).for_each(|round| drop(black_box(work(round))));
    let started = now();
    (0..rounds).for_each(|round| drop(black_box(work(round))));
    (now() - started).as_secs_f64() * 1e6 / f64::from(rounds)
}

/// Time that this process has been on a CPU: neighbours on a busy machine do not count (Linux, `proc_pid_schedstat`).
fn now() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = stat.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

struct World {
    routing: RoutingRequest,
    holders: Vec<Holder>,
    loads: Vec<Load>,
    residency: Residency,
    pending: Pending,
}

impl World {
    fn new(count: u16) -> Self {
        let worker = |at: u16| Holder { worker: WorkerId::new(&format!("worker-{at}")), rank: Rank(0) };
        let holders: Vec<Holder> = (0..count).map(worker).collect();
        let load = |at: u16| Load {
            active: u32::from(at % 7),
            prefill_tokens: u64::from(at) * 97 % 5000,
            ..Load::default()
        };
        let loads = (0..count).map(load).collect();
        let keys: Vec<BlockKey> = (0..512_u64).map(BlockKey::new).collect();
        let images: Vec<(MediaKey, u32)> = (0..4).map(|at| (MediaKey::new(at), 1200)).collect();
        let mut residency = Residency::new(ResidencyLimits::default());
        let mut pending = Pending::new(PendingLimits::default());
        for (at, holder) in holders.iter().enumerate() {
            for media in 0..1000_u64 {
                residency.see(holder, MediaKey::new(media * 3), Duration::ZERO);
            }
            if at % 4 == 0 {
                pending.dispatch(holder, keys.get(100..140).unwrap_or(&[]), Duration::ZERO);
            }
        }
        let routing = RoutingRequest {
            chains: vec![KeyChain { block_size: 16, keys }],
            prompt_tokens: 8200,
            mm_routing_info: MediaRouting { image_multiset: images, total_image_tokens: 4800 },
        };
        Self { routing, holders, loads, residency, pending }
    }

    /// As the scheduler does it: residency and pending blocks are looked up per candidate.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let chain = self.routing.chain(16).unwrap_or(&[]);
        let media = Query { multiset: &self.routing.mm_routing_info.image_multiset, payload_free: &[] };
        let candidate = |(holder, load): (&'_ Holder, &'_ Load)| {
            let near: NearMedia = self.residency.near(holder, media, Duration::ZERO);
            (near, self.pending.expected(holder, chain, 100), *load)
        };
        let looked_up = self.holders.iter().zip(&self.loads).map(candidate);
        looked_up
            .zip(&self.holders)
            .map(|((near, pending, load), holder)| Candidate {
                holder,
                standing: Standing::Ready,
                block_size: 16,
                matched_blocks: 100,
                pending_blocks: pending.blocks,
                computing_blocks: pending.computing,
                doubt: None,
                near,
                limits: Limits::default(),
                adapters: &[],
                rates: Rates::default(),
                load,
            })
            .collect()
    }
}
