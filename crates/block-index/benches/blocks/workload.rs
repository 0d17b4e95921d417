//! Deterministic workloads: what engines store and evict, and what requests ask for.
//!
//! Also compiled into `benches/peers`, so that every index sees the same events.

use std::collections::HashSet;

#[path = "trace.rs"]
pub mod trace;

/// One change, as an agent delivers it: stores parents-first, removals children-first.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub holder: u32,
    pub kind: Kind,
    /// Where its blocks are in the slab.
    pub from: usize,
    pub len: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind {
    Stored { parent: Option<u64> },
    Removed,
}

/// Events and queries over one slab of blocks.
#[derive(Debug, Default)]
pub struct Workload {
    pub holders: u32,
    /// Chained keys of the blocks of all events.
    pub keys: Vec<u64>,
    /// Hashes of the blocks' own tokens (0 for removals).
    pub locals: Vec<u64>,
    pub build: Vec<Event>,
    pub churn: Vec<Event>,
    pub query_keys: Vec<u64>,
    pub query_locals: Vec<u64>,
    /// First block and length.
    pub queries: Vec<(usize, usize)>,
    /// Pairs of a holder and a block after `build`.
    pub memberships: usize,
}

/// Sizes of a chat-like workload, in blocks unless named otherwise.
#[derive(Clone, Copy, Debug)]
struct Chat {
    holders: usize,
    systems: usize,
    system: (usize, usize),
    conversations: usize,
    turns: (usize, usize),
    turn: (usize, usize),
    depth_max: usize,
    replicas: (usize, usize),
    /// Blocks per store event of a prefill.
    chunk: usize,
    /// Share of a turn that is decoded, one block per event.
    decoded_percent: usize,
    queries: usize,
}

/// Names of the built-in workloads.
pub const NAMES: [&str; 6] = ["chat", "unshared", "long", "wide", "mooncake", "small"];

fn chat(name: &str) -> Option<Chat> {
    let chat = Chat {
        holders: 64,
        systems: 20,
        system: (32, 128),
        conversations: 2_000,
        turns: (3, 8),
        turn: (16, 96),
        depth_max: 512,
        replicas: (2, 8),
        chunk: 128,
        decoded_percent: 30,
        queries: 8_000,
    };
    Some(match name {
        "chat" => chat,
        "unshared" => Chat { conversations: 7_000, replicas: (1, 1), ..chat },
        "long" => Chat {
            holders: 8,
            systems: 4,
            system: (64, 256),
            conversations: 64,
            turns: (4, 8),
            turn: (800, 1_600),
            depth_max: 8_192,
            replicas: (2, 4),
            chunk: 512,
            decoded_percent: 2,
            queries: 2_000,
        },
        "wide" => Chat {
            holders: 1_000,
            systems: 50,
            system: (8, 8),
            conversations: 20_000,
            turns: (1, 2),
            turn: (4, 16),
            depth_max: 48,
            replicas: (2, 4),
            chunk: 32,
            queries: 20_000,
            ..chat
        },
        "small" => Chat {
            holders: 7,
            systems: 3,
            system: (2, 6),
            conversations: 40,
            turns: (2, 4),
            turn: (1, 8),
            depth_max: 40,
            replicas: (1, 5),
            chunk: 8,
            decoded_percent: 40,
            queries: 400,
        },
        _ => return None,
    })
}

/// Makes a workload by name; `None` for an unknown one.
pub fn make(name: &str, seed: u64) -> Option<Workload> {
    if name == "mooncake" {
        return Some(Workload::of_trace(&trace::mooncake_like(&mut Rng(seed ^ 0x6d6f), 1_000), seed));
    }
    chat(name).map(|sizes| Maker::new(sizes, seed).run())
}

/// `SplitMix64`.
#[derive(Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.word()) * bound as u128) >> 64) as usize
    }

    fn within(&mut self, (low, high): (usize, usize)) -> usize {
        low + self.below(high - low + 1)
    }
}

/// Chains block hashes to keys as `sl1` does.
pub fn chain(locals: &[u64]) -> Vec<u64> {
    let mut key = 0x51_u64;
    let step = |local: &u64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..].copy_from_slice(&local.to_le_bytes());
        key = xxhash_rust::xxh3::xxh3_64(&bytes);
        key
    };
    locals.iter().map(step).collect()
}

struct Conversation {
    locals: Vec<u64>,
    keys: Vec<u64>,
    /// Ends of the turns; the first is the end of the system prompt.
    ends: Vec<usize>,
}

/// One holder that has a conversation up to some turn.
#[derive(Clone, Copy)]
struct Stream {
    conversation: usize,
    holder: usize,
    turns: usize,
}

struct Maker {
    sizes: Chat,
    rng: Rng,
    held: Vec<HashSet<u64>>,
    out: Workload,
}

impl Maker {
    fn new(sizes: Chat, seed: u64) -> Self {
        let out = Workload { holders: sizes.holders as u32, ..Workload::default() };
        Self { sizes, rng: Rng(seed ^ 0x0073_6c31), held: vec![HashSet::new(); sizes.holders], out }
    }

    fn run(mut self) -> Workload {
        let systems: Vec<Vec<u64>> =
            (0..self.sizes.systems).map(|_| self.locals(self.sizes.system)).collect();
        let conversations: Vec<_> =
            (0..self.sizes.conversations).map(|_| self.conversation(&systems)).collect();
        let streams = self.streams(&conversations);
        for locals in &systems {
            let whole =
                Conversation { keys: chain(locals), locals: locals.clone(), ends: vec![locals.len()] };
            for holder in 0..self.sizes.holders {
                let events = self.store(&whole, holder, (0, locals.len()), 0);
                self.out.build.extend(events);
            }
        }
        self.build(&conversations, &streams);
        self.out.memberships = self.held.iter().map(HashSet::len).sum();
        self.churn(&conversations, &streams);
        self.ask(&conversations);
        self.out
    }

    fn locals(&mut self, bounds: (usize, usize)) -> Vec<u64> {
        (0..self.rng.within(bounds)).map(|_| self.rng.word()).collect()
    }

    fn conversation(&mut self, systems: &[Vec<u64>]) -> Conversation {
        // Earlier system prompts are more popular.
        let system = self.rng.below(systems.len()).min(self.rng.below(systems.len()));
        let mut locals = systems[system].clone();
        let mut ends = vec![locals.len()];
        for _ in 0..self.rng.within(self.sizes.turns) {
            let room = self.sizes.depth_max.saturating_sub(locals.len());
            let turn = self.rng.within(self.sizes.turn).min(room);
            if turn == 0 {
                break;
            }
            locals.extend((0..turn).map(|_| self.rng.word()));
            ends.push(locals.len());
        }
        Conversation { keys: chain(&locals), locals, ends }
    }

    fn streams(&mut self, conversations: &[Conversation]) -> Vec<Stream> {
        let mut streams = Vec::new();
        for (conversation, talk) in conversations.iter().enumerate() {
            let replicas = self.rng.within(self.sizes.replicas).min(self.sizes.holders);
            let mut holders = Vec::new();
            while holders.len() < replicas {
                let holder = self.rng.below(self.sizes.holders);
                if !holders.contains(&holder) {
                    holders.push(holder);
                }
            }
            for holder in holders {
                let turns = self.rng.within((1, (talk.ends.len() - 1).max(1)));
                streams.push(Stream { conversation, holder, turns: turns.min(talk.ends.len() - 1) });
            }
        }
        streams
    }

    /// Streams go on in random order, turn by turn.
    fn build(&mut self, conversations: &[Conversation], streams: &[Stream]) {
        let mut ahead: Vec<(usize, usize)> = (0..streams.len()).map(|stream| (stream, 0)).collect();
        while !ahead.is_empty() {
            let at = self.rng.below(ahead.len());
            let (stream, turn) = ahead[at];
            let Stream { conversation, holder, turns } = streams[stream];
            if turn >= turns {
                ahead.swap_remove(at);
                continue;
            }
            let talk = &conversations[conversation];
            let from = if turn == 0 { 0 } else { talk.ends[turn] };
            let events = self.store(talk, holder, (from, talk.ends[turn + 1]), self.sizes.decoded_percent);
            self.out.build.extend(events);
            ahead[at].1 += 1;
        }
    }

    /// A quarter of the streams lose their last turn, deepest block first, and get it again.
    fn churn(&mut self, conversations: &[Conversation], streams: &[Stream]) {
        let mut order: Vec<usize> = (0..streams.len()).collect();
        for at in 0..streams.len() / 4 {
            let other = at + self.rng.below(order.len() - at);
            order.swap(at, other);
            let Stream { conversation, holder, turns } = streams[order[at]];
            let talk = &conversations[conversation];
            let (from, upto) = (talk.ends[turns - 1], talk.ends[turns]);
            let start = self.out.keys.len();
            for key in talk.keys[from..upto].iter().rev() {
                if self.held[holder].remove(key) {
                    self.out.keys.push(*key);
                    self.out.locals.push(0);
                }
            }
            let len = self.out.keys.len() - start;
            if len > 0 {
                self.out.churn.push(Event { holder: holder as u32, kind: Kind::Removed, from: start, len });
                let events = self.store(talk, holder, (from, upto), self.sizes.decoded_percent);
                self.out.churn.extend(events);
            }
        }
    }

    /// Makes the events by which a holder gets the new ones of some blocks: chunks of prefill, then decoded blocks.
    fn store(
        &mut self,
        talk: &Conversation,
        holder: usize,
        (from, upto): (usize, usize),
        decoded: usize,
    ) -> Vec<Event> {
        let fresh = (from..upto).find(|at| !self.held[holder].contains(&talk.keys[*at])).unwrap_or(upto);
        let prefilled = upto - ((upto - fresh) * decoded / 100).min(upto - fresh);
        let mut events = Vec::new();
        let mut at = fresh;
        while at < upto {
            let end = if at < prefilled { (at + self.sizes.chunk).min(prefilled) } else { at + 1 };
            let parent = at.checked_sub(1).map(|before| talk.keys[before]);
            let (kind, from) = (Kind::Stored { parent }, self.out.keys.len());
            events.push(Event { holder: holder as u32, kind, from, len: end - at });
            self.out.keys.extend_from_slice(&talk.keys[at..end]);
            self.out.locals.extend_from_slice(&talk.locals[at..end]);
            at = end;
        }
        self.held[holder].extend(&talk.keys[fresh..upto]);
        events
    }

    /// Most requests continue a conversation; some begin one, some are foreign, some repeat all of one.
    fn ask(&mut self, conversations: &[Conversation]) {
        for _ in 0..self.sizes.queries {
            let talk = &conversations[self.rng.below(conversations.len())];
            let known = match self.rng.below(10) {
                0..=5 => talk.ends[self.rng.below(talk.ends.len())],
                6 | 7 => talk.ends[0],
                8 => 0,
                _ => talk.locals.len(),
            };
            let mut locals = talk.locals[..known].to_vec();
            if known < talk.locals.len() {
                locals.extend(self.locals(self.sizes.turn));
                locals.truncate(self.sizes.depth_max);
            }
            self.out.query(&locals);
        }
    }
}

impl Workload {
    /// Counts the blocks of events.
    pub fn blocks(events: &[Event]) -> usize {
        events.iter().map(|event| event.len).sum()
    }

    fn query(&mut self, locals: &[u64]) {
        self.queries.push((self.query_locals.len(), locals.len()));
        self.query_keys.extend(chain(locals));
        self.query_locals.extend_from_slice(locals);
    }
}

/// The naive model: a set of keys per holder.
#[derive(Debug)]
pub struct Naive(pub Vec<HashSet<u64>>);

impl Naive {
    pub fn new(holders: u32) -> Self {
        Self(vec![HashSet::new(); holders as usize])
    }

    pub fn apply(&mut self, workload: &Workload, event: &Event) {
        let keys = &workload.keys[event.from..event.from + event.len];
        let held = &mut self.0[event.holder as usize];
        match event.kind {
            Kind::Stored { .. } => held.extend(keys),
            Kind::Removed => keys.iter().for_each(|key| {
                held.remove(key);
            }),
        }
    }

    /// Answers (holder, depth) by holder, depths above 0.
    pub fn matches(&self, keys: &[u64]) -> Vec<(u32, u32)> {
        let depth = |held: &HashSet<u64>| keys.iter().take_while(|key| held.contains(key)).count() as u32;
        (0..)
            .zip(&self.0)
            .map(|(holder, held)| (holder, depth(held)))
            .filter(|(_, depth)| *depth > 0)
            .collect()
    }
}
