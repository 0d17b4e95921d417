//! Where a rank's events can be had.

use serde::Serialize;

use crate::kv_publisher::RING_BATCHES;

/// One rank's entry in `GET /kv_event_sources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KvEventSource {
    enable_kv_cache_events: bool,
    publisher: &'static str,
    /// The publisher's endpoint, with its real port; whoever binds it is told by vLLM's rule, unless configured.
    pub endpoint: String,
    /// The replay endpoint, with its real port.
    pub replay_endpoint: Option<String>,
    buffer_steps: usize,
    hwm: usize,
    max_queue_size: usize,
    /// First frame of every message.
    pub topic: String,
}

impl KvEventSource {
    /// Describes a publisher.
    #[must_use]
    pub const fn new(endpoint: String, replay_endpoint: Option<String>, topic: String) -> Self {
        Self {
            enable_kv_cache_events: true,
            publisher: "zmq",
            endpoint,
            replay_endpoint,
            buffer_steps: RING_BATCHES,
            hwm: 100_000,
            max_queue_size: 100_000,
            topic,
        }
    }
}
