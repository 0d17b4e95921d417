#![doc = include_str!("../README.md")]

mod board;
mod candidate;
mod confidence;
mod cost;
mod decision;
mod demotion;
mod estimator;
mod gauge;
mod pending;
mod place;
mod policy;
mod queue;
mod rates;
mod request;
mod residency;
mod seed;
mod verdict;
mod wanted;

pub use board::{Board, BoardLimits, Reading, Report};
pub use candidate::{Candidate, Limits, Load, NearMedia, Standing, Why};
pub use confidence::Confidence;
pub use cost::{CostMs, Work, cost};
pub use decision::{Appraisal, Decision, NEAR_MS, NEAR_SHARE, Reason, Unplaced, near_limit};
pub use demotion::{DemotionLimits, Demotions, Feature, Ruling};
pub use estimator::{Estimator, Learning, Sample};
pub use gauge::{Gauge, Gauges, Prefill, Reservation};
pub use pending::{DispatchId, Expected, Pending, PendingLimits};
pub use place::{Turn, place};
pub use policy::{Policy, UnknownPolicy};
pub use queue::{Full, Queue, QueueLimits, Ticket};
pub use rates::Rates;
pub use request::{KeyChain, MediaRouting, RoutingRequest};
pub use residency::{Query, Residency, ResidencyLimits};
pub use verdict::{Actual, Circumstances, Class, IndexState, Obstacle, Predicted, Traits, Verdict, judge};
pub use wanted::{Wanted, cached_tokens};
