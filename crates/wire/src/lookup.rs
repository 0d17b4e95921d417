//! A frontend's questions to indexers, and their answers: who has how much of a prompt, and how holders stand.
//!
//! ```text
//! Depths{chains: [(block size, keys)]} → Depths{found: [(holder, life, blocks)]}     per request, the first answer wins
//! Roster                               → Roster{holders: [Standing]}                 each second
//! ```
//! An indexer that is not ready does not answer.

use std::borrow::Cow;

use bytes::Bytes;
use identity::{BlockKey, Holder, Incarnation, Rank, WorkerId};
use membership::replica::Phase;
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};
use crate::form::{IncarnationForm, Keys};

/// Most keys of one question, 256 KiB: the asker cuts longer prompts.
pub const KEYS_MAX: usize = 32_768;

/// A question about one model, sent on its lookup subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who has how much of this prompt?
    Depths {
        /// The prompt's keys from its beginning, for each block size among the workers.
        chains: Vec<Chain>,
    },
    /// How do the holders stand?
    Roster,
}

/// A prompt's keys for one block size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Tokens per block.
    pub block_size: u32,
    /// In prompt order.
    pub keys: Vec<BlockKey>,
}

/// An indexer's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Response {
    /// Who has how much.
    Depths {
        /// Only those that have anything.
        found: Vec<Depth>,
    },
    /// How holders stand.
    Roster {
        /// All that are followed.
        holders: Vec<Standing>,
    },
}

/// What one holder has of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Depth {
    /// The holder.
    pub holder: Holder,
    /// The engine life that has it.
    pub incarnation: Incarnation,
    /// Blocks from the prompt's beginning on; at least 1.
    pub blocks: u32,
}

/// How one holder stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing {
    /// The holder.
    pub holder: Holder,
    /// Where the indexer's replica of it stands.
    pub phase: Phase,
    /// The engine life that its blocks belong to.
    pub incarnation: Option<Incarnation>,
    /// Sequence of the last delta in the index.
    pub seq: u64,
    /// Sequence of the agent, as of the last beat.
    pub beat_seq: u64,
    /// Blocks removed since the holder has its place in the index.
    pub removed: u64,
    /// Blocks in the index.
    pub blocks: u64,
    /// Digest of these, folded.
    pub digest: u64,
    /// Whether the digest equalled the agent's when last compared.
    pub agrees: Option<bool>,
    /// Share of the engine's blocks that the agent knows, 0 to 1.
    pub coverage: f32,
    /// Requests that the engine runs.
    pub running: u32,
    /// Requests that wait in the engine.
    pub waiting: u32,
    /// Share of its KV cache in use, 0 to 1.
    pub kv_usage: f32,
    /// Whether the engine answered its agent.
    pub engine_healthy: bool,
    /// Milliseconds since the last beat; none before the first.
    pub beat_age_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
enum RequestForm<'a> {
    Depths { chains: Vec<(u32, Keys<'a>)> },
    Roster,
}

#[derive(Serialize, Deserialize)]
enum ResponseForm<'a> {
    Depths { found: Vec<(Cow<'a, str>, u16, IncarnationForm, u32)> },
    Roster { holders: Vec<StandingForm<'a>> },
}

#[derive(Serialize, Deserialize)]
struct StandingForm<'a> {
    worker: Cow<'a, str>,
    rank: u16,
    phase: u8,
    incarnation: Option<IncarnationForm>,
    seq: u64,
    beat_seq: u64,
    removed: u64,
    blocks: u64,
    digest: u64,
    agrees: Option<bool>,
    coverage: f32,
    running: u32,
    waiting: u32,
    kv_usage: f32,
    engine_healthy: bool,
    beat_age_ms: Option<u64>,
}

impl Form for RequestForm<'_> {
    type Previous = Self;
}

impl Form for ResponseForm<'_> {
    type Previous = Self;
}

impl Request {
    /// Encodes the question.
    ///
    /// # Errors
    /// `TooLarge` or `Encode` where there are far more than [`KEYS_MAX`] keys.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Depths { chains } => RequestForm::Depths {
                chains: chains
                    .iter()
                    .map(|chain| (chain.block_size, Keys(Cow::Borrowed(&chain.keys))))
                    .collect(),
            },
            Self::Roster => RequestForm::Roster,
        })
    }

    /// Decodes a question.
    ///
    /// # Errors
    /// The indexer does not answer; the frontend's deadline passes.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            RequestForm::Depths { chains } => {
                if chains.iter().map(|(_, keys)| keys.0.len()).sum::<usize>() > KEYS_MAX {
                    return Err(Error::Invalid { field: "number of keys" });
                }
                let chain =
                    |(block_size, keys): (u32, Keys<'_>)| Chain { block_size, keys: keys.0.into_owned() };
                Self::Depths { chains: chains.into_iter().map(chain).collect() }
            }
            RequestForm::Roster => Self::Roster,
        })
    }
}

impl Response {
    /// Encodes the answer.
    ///
    /// # Errors
    /// `TooLarge` or `Encode` past 1 MiB, which takes some 8,000 holders.
    pub fn encode(&self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Depths { found } => ResponseForm::Depths {
                found: found
                    .iter()
                    .map(|depth| {
                        let Depth { holder, incarnation, blocks } = depth;
                        let worker = Cow::Borrowed(holder.worker.as_str());
                        (worker, holder.rank.0, (*incarnation).into(), *blocks)
                    })
                    .collect(),
            },
            Self::Roster { holders } => {
                ResponseForm::Roster { holders: holders.iter().map(StandingForm::from).collect() }
            }
        })
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Counts as no answer.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            ResponseForm::Depths { found } => Self::Depths {
                found: found
                    .into_iter()
                    .map(|(worker, rank, incarnation, blocks)| Depth {
                        holder: Holder { worker: WorkerId::new(&worker), rank: Rank(rank) },
                        incarnation: incarnation.into(),
                        blocks,
                    })
                    .collect(),
            },
            ResponseForm::Roster { holders } => {
                let holders = holders.into_iter().map(StandingForm::check);
                Self::Roster { holders: holders.collect::<Result<_, Error>>()? }
            }
        })
    }
}

const PHASES: [Phase; 7] = [
    Phase::Unknown,
    Phase::Syncing,
    Phase::Live,
    Phase::Repairing,
    Phase::Gone,
    Phase::Refused,
    Phase::Quarantined,
];

impl<'a> From<&'a Standing> for StandingForm<'a> {
    fn from(standing: &'a Standing) -> Self {
        let phase = PHASES.iter().position(|phase| *phase == standing.phase).unwrap_or(0);
        Self {
            worker: Cow::Borrowed(standing.holder.worker.as_str()),
            rank: standing.holder.rank.0,
            phase: u8::try_from(phase).unwrap_or(0),
            incarnation: standing.incarnation.map(Into::into),
            seq: standing.seq,
            beat_seq: standing.beat_seq,
            removed: standing.removed,
            blocks: standing.blocks,
            digest: standing.digest,
            agrees: standing.agrees,
            coverage: standing.coverage,
            running: standing.running,
            waiting: standing.waiting,
            kv_usage: standing.kv_usage,
            engine_healthy: standing.engine_healthy,
            beat_age_ms: standing.beat_age_ms,
        }
    }
}

impl StandingForm<'_> {
    fn check(self) -> Result<Standing, Error> {
        let share = |share: f32| (0.0..=1.0).contains(&share);
        if !share(self.coverage) || !share(self.kv_usage) {
            return Err(Error::Invalid { field: "share" });
        }
        Ok(Standing {
            holder: Holder { worker: WorkerId::new(&self.worker), rank: Rank(self.rank) },
            phase: *PHASES.get(usize::from(self.phase)).ok_or(Error::Invalid { field: "phase" })?,
            incarnation: self.incarnation.map(Into::into),
            seq: self.seq,
            beat_seq: self.beat_seq,
            removed: self.removed,
            blocks: self.blocks,
            digest: self.digest,
            agrees: self.agrees,
            coverage: self.coverage,
            running: self.running,
            waiting: self.waiting,
            kv_usage: self.kv_usage,
            engine_healthy: self.engine_healthy,
            beat_age_ms: self.beat_age_ms,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holder(worker: &str, rank: u16) -> Holder {
        Holder { worker: WorkerId::new(worker), rank: Rank(rank) }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn questions_survive(chains in prop::collection::vec((1_u32..99, any::<Vec<u64>>()), 0..4)) {
            let chain = |(block_size, keys): (u32, Vec<u64>)| {
                Chain { block_size, keys: keys.into_iter().map(BlockKey::new).collect() }
            };
            let asked = Request::Depths { chains: chains.into_iter().map(chain).collect() };
            prop_assert_eq!(Request::decode(&asked.encode().unwrap()).unwrap(), asked);
        }

        #[test]
        fn answers_survive(worker in ".{0,9}", rank: u16, seq: u64, blocks: u32, phase in 0_usize..7, share in 0.0_f32..1.0, age: Option<u64>) {
            let incarnation = Incarnation { started_ms: seq, nonce: u64::from(blocks) };
            let depth = Depth { holder: holder(&worker, rank), incarnation, blocks };
            let told = Response::Depths { found: vec![depth] };
            prop_assert_eq!(Response::decode(&told.encode().unwrap()).unwrap(), told);
            let standing = Standing {
                holder: holder(&worker, rank), phase: PHASES[phase], incarnation: age.map(|_| incarnation), seq,
                beat_seq: seq, removed: 1, blocks: seq, digest: seq, agrees: age.map(|age| age % 2 == 0), coverage: share,
                running: blocks, waiting: blocks, kv_usage: share, engine_healthy: seq % 2 == 0, beat_age_ms: age,
            };
            let told = Response::Roster { holders: vec![standing] };
            prop_assert_eq!(Response::decode(&told.encode().unwrap()).unwrap(), told);
        }

        #[test]
        fn noise_is_refused_without_panic(noise in any::<Vec<u8>>()) {
            drop(Request::decode(&noise));
            drop(Response::decode(&noise));
        }
    }

    #[test]
    fn questions_are_bounded() {
        let chain = |keys| Chain { block_size: 16, keys: vec![BlockKey::new(1); keys] };
        let ask = |chains| Request::Depths { chains }.encode().unwrap();
        assert!(Request::decode(&ask(vec![chain(KEYS_MAX)])).is_ok());
        assert!(Request::decode(&ask(vec![chain(KEYS_MAX), chain(1)])).is_err());
        assert_eq!(Request::decode(&Request::Roster.encode().unwrap()).unwrap(), Request::Roster);
    }
}
