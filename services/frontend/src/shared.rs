//! What all requests of a frontend share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use actors::{FactBoardHandle, NameLearnerHandle};
use placement::Policy;
use ports::{Clock, Engine};
use tokio_util::sync::CancellationToken;

use crate::commands::Commands;
use crate::hand_over::HandOver;
use crate::metrics::Metrics;
use crate::models::Models;
use crate::record_log::RecordLog;
use crate::request_body::Bodies;
use crate::request_id::RequestIds;
use crate::retry_budget::RetryBudget;
use crate::understanding::Reader;
use crate::verification::Streaks;

/// One frontend's parts; every one of them is bounded.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The frontend's name.
    pub(crate) id: String,
    pub(crate) models: Models,
    pub(crate) reader: Reader,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) hand_over: HandOver,
    /// Learns the names that engines give to images.
    pub(crate) names: NameLearnerHandle,
    /// Shares what is learned of media.
    pub(crate) facts: FactBoardHandle,
    pub(crate) commands: Commands,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Metrics,
    pub(crate) records: RecordLog,
    pub(crate) retries: RetryBudget,
    pub(crate) streaks: Streaks,
    pub(crate) bodies: Bodies,
    pub(crate) ids: RequestIds,
    pub(crate) defaults: Defaults,
    /// When it started, on the clock.
    pub(crate) started: Duration,
    /// Whether it was ready once.
    pub(crate) ready: AtomicBool,
    /// Whether it is about to end: it serves, but should get no more.
    pub(crate) leaving: AtomicBool,
    /// Cancelled once the frontend is to end.
    pub(crate) stop: CancellationToken,
}

/// What holds where a request says nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    pub(crate) policy: Policy,
    pub(crate) wait_max: Duration,
    /// Whether clients' keys are for engines, since none are configured here.
    pub(crate) keep_authorization: bool,
}
