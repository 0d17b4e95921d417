//! What `/metrics` shows.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// The frontend's own metrics; label values come from closed lists and from configuration.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    in_flight: Gauge,
    routed: Family<RoutedLabels, Counter>,
    fallbacks: Family<ReasonLabels, Counter>,
    verdicts: Family<VerdictLabels, Counter>,
    sheds: Family<ReasonLabels, Counter>,
    retries: Family<ReasonLabels, Counter>,
    cancelled: Counter,
    media: Family<MediaLabels, Counter>,
    handed: Family<HandedLabels, Counter>,
    undecoded: Family<ReasonLabels, Counter>,
    served: Family<OutcomeLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    decision: Histogram,
    look_up: Histogram,
    index_queries: Family<ReasonLabels, Counter>,
    first_byte: Family<ModelLabels, Histogram, Buckets>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    route: &'static str,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RoutedLabels {
    worker: String,
    rank: u16,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabels {
    verdict: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MediaLabels {
    source: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandedLabels {
    way: &'static str,
    form: &'static str,
    /// Why it was not the configured way; empty where it was.
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
}

#[derive(Clone, Copy, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 2.0, 18))
    }
}

/// A sampled value that another component owns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sampled {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) value: f64,
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("sightline"),
            requests: Family::default(),
            in_flight: Gauge::default(),
            routed: Family::default(),
            fallbacks: Family::default(),
            verdicts: Family::default(),
            sheds: Family::default(),
            retries: Family::default(),
            cancelled: Counter::default(),
            media: Family::default(),
            handed: Family::default(),
            undecoded: Family::default(),
            served: Family::default(),
            tokens: Family::default(),
            decision: Histogram::new(exponential_buckets(0.000_01, 2.0, 16)),
            look_up: Histogram::new(exponential_buckets(0.000_05, 1.5, 16)),
            index_queries: Family::default(),
            first_byte: Family::new_with_constructor(Buckets),
        };
        metrics.register();
        metrics
    }

    fn register(&mut self) {
        let registry = &mut self.registry;
        registry.register("requests", "Requests answered", self.requests.clone());
        registry.register("requests_in_flight", "Requests being answered", self.in_flight.clone());
        registry.register("routed_requests", "Requests sent to a worker, by reason", self.routed.clone());
        registry.register("fallbacks", "Requests routed with less credit, by reason", self.fallbacks.clone());
        registry.register("verdicts", "Predictions compared with the engine's usage", self.verdicts.clone());
        registry.register("sheds", "Requests refused for overload, by reason", self.sheds.clone());
        registry.register("retries", "Requests sent to a second worker, by reason", self.retries.clone());
        registry.register("cancelled_requests", "Requests whose client went away", self.cancelled.clone());
        registry.register("media_items", "Media items, by source and outcome", self.media.clone());
        registry.register("media_handed_over", "Media handed to workers, by way", self.handed.clone());
        let help = "Media handed over as they are although decoding is on, by reason";
        registry.register("media_undecoded", help, self.undecoded.clone());
        registry.register("media_served", "Requests to the media listener, by outcome", self.served.clone());
        registry.register("prompt_tokens", "Prompt tokens routed, by kind", self.tokens.clone());
        registry.register("decision_seconds", "From parsed body to decision", self.decision.clone());
        registry.register("index_query_seconds", "From question to indexers' answer", self.look_up.clone());
        registry.register("index_queries", "Questions to indexers, by outcome", self.index_queries.clone());
        registry.register(
            "first_byte_seconds",
            "From request to first byte of body",
            self.first_byte.clone(),
        );
    }

    pub(crate) fn began(&self) {
        self.in_flight.inc();
    }

    pub(crate) fn ended(&self) {
        self.in_flight.dec();
    }

    pub(crate) fn answered(&self, route: &'static str, status: u16) {
        self.requests.get_or_create(&RequestLabels { route, status }).inc();
    }

    pub(crate) fn routed(&self, worker: &str, rank: u16, reason: &'static str) {
        let worker = worker.to_owned();
        self.routed.get_or_create(&RoutedLabels { worker, rank, reason }).inc();
    }

    pub(crate) fn fallback(&self, reason: &'static str) {
        self.fallbacks.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn verdict(&self, verdict: &'static str) {
        self.verdicts.get_or_create(&VerdictLabels { verdict }).inc();
    }

    pub(crate) fn shed(&self, reason: &'static str) {
        self.sheds.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn retry(&self, reason: &'static str) {
        self.retries.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn cancelled(&self) {
        self.cancelled.inc();
    }

    pub(crate) fn media(&self, source: &'static str, outcome: &'static str) {
        self.media.get_or_create(&MediaLabels { source, outcome }).inc();
    }

    pub(crate) fn media_handed(&self, way: &'static str, form: &'static str, reason: &'static str) {
        self.handed.get_or_create(&HandedLabels { way, form, reason }).inc();
    }

    pub(crate) fn media_undecoded(&self, reason: &'static str) {
        self.undecoded.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn media_served(&self, outcome: &'static str) {
        self.served.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    pub(crate) fn tokens(&self, kind: &'static str, count: u32) {
        self.tokens.get_or_create(&TokenLabels { kind }).inc_by(u64::from(count));
    }

    pub(crate) fn decided(&self, took: Duration) {
        self.decision.observe(took.as_secs_f64());
    }

    pub(crate) fn looked_up(&self, took: Duration) {
        self.look_up.observe(took.as_secs_f64());
    }

    pub(crate) fn index_query(&self, outcome: &'static str) {
        self.index_queries.get_or_create(&ReasonLabels { reason: outcome }).inc();
    }

    pub(crate) fn first_byte(&self, model: &str, took: Duration) {
        let labels = ModelLabels { model: model.to_owned() };
        self.first_byte.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Writes the Prometheus text format, `sampled` gauges included.
    pub(crate) fn text(&self, sampled: &[Sampled]) -> String {
        use std::fmt::Write;
        let mut text = String::new();
        if let Err(cause) = prometheus_client::encoding::text::encode_registry(&mut text, &self.registry) {
            tracing::warn!(%cause, "metrics cannot be written");
        }
        for Sampled { name, help, value } in sampled {
            let written = write!(
                text,
                "# HELP sightline_{name} {help}.\n# TYPE sightline_{name} gauge\nsightline_{name} {value}\n"
            );
            if written.is_err() {
                break;
            }
        }
        text.push_str("# EOF\n");
        text
    }
}
