//! The process-wide subscriber.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::{Level, Metadata};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::export::BoundedProcessor;

/// Crates whose spans are exported; what libraries trace below them stays here.
const TRACED: [&str; 7] = ["frontend", "actors", "indexer", "agent", "engine_sim", "sightline", "prompt"];

/// How the targets of the exporter's libraries begin.
const EXPORTERS: &str = "opentelemetry";

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One line for a person.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// What to log and where to send traces.
#[derive(Clone, Debug)]
pub struct Config {
    /// Names the process in traces.
    pub service: String,
    /// Directives of `tracing_subscriber::EnvFilter`, for example `info,frontend=debug`.
    pub filter: String,
    /// How log lines look.
    pub format: Format,
    /// OTLP/gRPC endpoint, for example `http://127.0.0.1:4317`; none exports nothing.
    pub otlp_endpoint: Option<String>,
    /// Share of the traces begun here that are recorded, 0 to 1; of others' traces, those that they record.
    pub sample_ratio: f64,
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The filter does not parse.
    #[error("malformed log filter {filter:?}")]
    Filter {
        /// As given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The exporter cannot be built.
    #[error("cannot export traces to {endpoint}")]
    Exporter {
        /// As given.
        endpoint: String,
        /// The exporter's reason.
        #[source]
        source: opentelemetry_otlp::ExporterBuildError,
    },
    /// A subscriber is already installed in this process.
    #[error("telemetry is already set up in this process")]
    AlreadySet,
}

/// Flushes traces when dropped.
#[derive(Debug)]
#[must_use = "dropping the guard ends the export of traces"]
pub struct Guard {
    provider: Option<SdkTracerProvider>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take()
            && let Err(cause) = provider.shutdown_with_timeout(Duration::from_secs(2))
        {
            tracing::debug!(%cause, "traces not flushed");
        }
    }
}

/// Installs the process's subscriber; with an endpoint it must be called inside a Tokio runtime.
///
/// # Errors
/// Returns what is wrong with the configuration; nothing is installed then.
pub fn init(config: &Config) -> Result<Guard, Error> {
    let filter = EnvFilter::try_new(&config.filter)
        .map_err(|source| Error::Filter { filter: config.filter.clone(), source })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match config.format {
        Format::Text => lines.with_ansi(std::io::stderr().is_terminal()).with_target(false).boxed(),
        Format::Json => lines.json().boxed(),
    };
    let provider = config.otlp_endpoint.as_deref().map(|endpoint| provider(config, endpoint)).transpose()?;
    let traces = provider.as_ref().map(|provider| {
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("sightline"));
        let layer = layer.with_threads(false).with_location(false).with_tracked_inactivity(false);
        layer.with_filter(filter_fn(is_traced).with_max_level_hint(LevelFilter::DEBUG))
    });
    let exporters_too = config.filter.clone();
    let said = filter_fn(move |metadata| is_said(metadata.target(), &exporters_too));
    tracing_subscriber::registry()
        .with(lines.with_filter(filter).with_filter(said))
        .with(traces)
        .try_init()
        .map_err(|_| Error::AlreadySet)?;
    Ok(Guard { provider })
}

/// All but what the exporter's libraries say of themselves, unless they are asked for: of an export that fails
/// `export` says so, once, and counts the rest.
fn is_said(target: &str, filter: &str) -> bool {
    !target.starts_with(EXPORTERS) || filter.contains(EXPORTERS)
}

/// Spans down to DEBUG, which lines don't show, and what is worth a line within them.
fn is_traced(metadata: &Metadata<'_>) -> bool {
    let target = metadata.target();
    let ours = TRACED.contains(&target.split_once("::").map_or(target, |(root, _)| root));
    let level_max = if metadata.is_span() { Level::DEBUG } else { Level::INFO };
    ours && *metadata.level() <= level_max
}

fn provider(config: &Config, endpoint: &str) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_secs(3))
        .build()
        .map_err(|source| Error::Exporter { endpoint: endpoint.to_owned(), source })?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.sample_ratio)));
    Ok(SdkTracerProvider::builder()
        .with_sampler(sampler)
        .with_span_processor(BoundedProcessor::new(exporter))
        .with_resource(Resource::builder().with_service_name(config.service.clone()).build())
        .build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exporters_are_silent_unless_asked_for() {
        for (target, filter, said) in [
            ("opentelemetry_sdk", "info", false),
            ("opentelemetry-otlp", "debug,frontend=trace", false),
            ("opentelemetry_sdk", "info,opentelemetry_sdk=debug", true),
            ("telemetry::export", "info", true),
            ("frontend::dispatch", "info", true),
        ] {
            assert_eq!(is_said(target, filter), said, "{target} {filter}");
        }
    }
}
