#![doc = include_str!("../README.md")]

mod candidate;
mod cost;
mod decision;
mod estimator;
mod gauge;
mod pending;
mod place;
mod policy;
mod rates;
mod request;
mod residency;
mod seed;
mod wanted;

pub use candidate::{Candidate, Limits, Load, NearMedia, Standing, Why};
pub use cost::{CostMs, Work, cost};
pub use decision::{Appraisal, Decision, NEAR_MS, NEAR_SHARE, Reason, Unplaced, near_limit};
pub use estimator::{Estimator, Sample};
pub use gauge::{Gauge, Gauges, Prefill, Reservation};
pub use pending::{DispatchId, Expected, Pending, PendingLimits};
pub use place::{Turn, place};
pub use policy::{Policy, UnknownPolicy};
pub use rates::Rates;
pub use request::{KeyChain, MediaRouting, RoutingRequest};
pub use residency::{Query, Residency, ResidencyLimits};
pub use wanted::{Wanted, cached_tokens};
