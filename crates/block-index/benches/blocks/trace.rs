//! Workloads from traces in Mooncake's format, and traces like them.

use std::collections::{HashMap, VecDeque};

use super::{Event, Kind, Rng, Workload, chain};

impl Workload {
    /// Replays requests (chunk ids of 512 tokens each) over 32 holders that each keep the most recent 16,384 blocks of
    /// 64 tokens; three requests of four go where their prefix is.
    pub fn of_trace(requests: &[Vec<u64>], seed: u64) -> Self {
        const HOLDERS: usize = 32;
        const CAPACITY: usize = 16_384;
        let mut rng = Rng(seed ^ 0x7472);
        let mut out = Self { holders: HOLDERS as u32, ..Self::default() };
        let mut caches: Vec<Lru> =
            (0..HOLDERS).map(|holder| Lru { holder, capacity: CAPACITY, ..Lru::default() }).collect();
        let mut seen: HashMap<u64, usize> = HashMap::new();
        for request in requests {
            for copy in 0..6_u64 {
                let block = |id: u64| (0..8).map(move |part| Rng((id * 8 + part) ^ copy << 50).word());
                let locals: Vec<u64> = request.iter().copied().flat_map(block).collect();
                out.query(&locals);
                let keys = chain(&locals);
                let known = keys.iter().rev().find_map(|key| seen.get(key).copied());
                let holder = known.filter(|_| rng.below(4) > 0).unwrap_or_else(|| rng.below(HOLDERS));
                seen.extend(keys.iter().map(|key| (*key, holder)));
                caches[holder].admit(&keys, &locals, &mut out);
            }
        }
        out.memberships = caches.iter().map(|cache| cache.uses.len()).sum();
        out
    }
}

/// A holder's cache: prompts by their last use, blocks by how many of them have it.
#[derive(Default)]
struct Lru {
    holder: usize,
    /// Blocks.
    capacity: usize,
    prompts: VecDeque<Vec<u64>>,
    uses: HashMap<u64, usize>,
}

impl Lru {
    fn admit(&mut self, keys: &[u64], locals: &[u64], out: &mut Workload) {
        let known = keys.iter().take_while(|key| self.uses.contains_key(key)).count();
        for key in keys {
            *self.uses.entry(*key).or_default() += 1;
        }
        self.prompts.push_back(keys.to_vec());
        while self.uses.len() > self.capacity && self.prompts.len() > 1 {
            let Some(oldest) = self.prompts.pop_front() else { break };
            let from = out.keys.len();
            for key in oldest.iter().rev() {
                let left = self.uses.get_mut(key).map_or(0, |uses| {
                    *uses -= 1;
                    *uses
                });
                if left == 0 {
                    self.uses.remove(key);
                    out.keys.push(*key);
                    out.locals.push(0);
                }
            }
            let len = out.keys.len() - from;
            if len > 0 {
                out.build.push(Event { holder: self.holder as u32, kind: Kind::Removed, from, len });
            }
        }
        let mut at = known;
        while at < keys.len() {
            let end = (at + 128).min(keys.len());
            let parent = at.checked_sub(1).map(|before| keys[before]);
            let (kind, from) = (Kind::Stored { parent }, out.keys.len());
            out.build.push(Event { holder: self.holder as u32, kind, from, len: end - at });
            out.keys.extend_from_slice(&keys[at..end]);
            out.locals.extend_from_slice(&locals[at..end]);
            at = end;
        }
    }
}

/// Makes requests like those of the Mooncake traces: sessions with growing contexts over a few shared beginnings, and
/// many one-off prompts; lengths are heavy-tailed, around 8k tokens.
pub fn mooncake_like(rng: &mut Rng, count: usize) -> Vec<Vec<u64>> {
    let mut id = 0_u64;
    let mut take = |count: usize| {
        id += count as u64;
        (id - count as u64..id).collect::<Vec<u64>>()
    };
    let beginnings: Vec<Vec<u64>> = (0..12).map(|_| take(1 + rng.below(6))).collect();
    let mut sessions: Vec<Vec<u64>> = Vec::new();
    let mut requests = Vec::new();
    for _ in 0..count {
        let tail = 1 + rng.below(8) + if rng.below(10) == 0 { rng.below(120) } else { rng.below(10) };
        let request = match rng.below(10) {
            0..=4 if !sessions.is_empty() => {
                let recent = sessions.len().saturating_sub(60);
                let session = recent + rng.below(sessions.len() - recent);
                sessions[session].extend(take(tail.min(16)));
                sessions[session].clone()
            }
            0..=7 => {
                let mut request = beginnings[rng.below(12).min(rng.below(12))].clone();
                request.extend(take(tail));
                sessions.push(request.clone());
                request
            }
            _ => take(tail),
        };
        requests.push(request);
    }
    requests
}

/// Reads a trace in Mooncake's format: a JSON object per line with `hash_ids`.
pub fn read_trace(text: &str) -> Vec<Vec<u64>> {
    let ids = |line: &str| {
        let list = line.split("\"hash_ids\"").nth(1)?.split('[').nth(1)?.split(']').next()?;
        Some(list.split(',').filter_map(|id| id.trim().parse().ok()).collect())
    };
    text.lines().filter_map(ids).filter(|ids: &Vec<u64>| !ids.is_empty()).collect()
}
