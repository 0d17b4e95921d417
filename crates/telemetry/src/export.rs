//! The way of ended spans: a bounded queue, batches, the exporter; what does not fit is dropped and counted.
//!
//! ```text
//! span ends ─► room? ─► queue (4,096) ─► batches of 512, each second at the latest ─► OTLP
//!                └ no: dropped                                         └ fails: failed
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry::Context;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Span, SpanData, SpanExporter, SpanProcessor,
};

/// Spans that wait or are being sent.
const QUEUE_MAX: usize = 4096;
/// Spans sent at a time.
const BATCH_MAX: usize = 512;
/// How long a span waits for others.
const PAUSE: Duration = Duration::from_secs(1);

static EXPORTED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// What became of the process's spans so far; those that wait are in none of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanTally {
    /// The collector has them.
    pub exported: u64,
    /// The collector did not take them.
    pub failed: u64,
    /// The queue was full.
    pub dropped: u64,
}

/// Counts the process's spans; the subscriber is the process's, so are they.
#[must_use]
pub fn span_tally() -> SpanTally {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    SpanTally { exported: read(&EXPORTED), failed: read(&FAILED), dropped: read(&DROPPED) }
}

/// Takes ended spans without ever waiting.
#[derive(Debug)]
pub(crate) struct BoundedProcessor {
    batches: BatchSpanProcessor,
    waiting: Arc<AtomicUsize>,
}

impl BoundedProcessor {
    pub(crate) fn new(exporter: impl SpanExporter + 'static) -> Self {
        let waiting = Arc::new(AtomicUsize::new(0));
        let counting = Counting { exporter, waiting: Arc::clone(&waiting), failing: AtomicBool::new(false) };
        let config = BatchConfigBuilder::default()
            .with_max_queue_size(QUEUE_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(PAUSE)
            .build();
        Self { batches: BatchSpanProcessor::builder(counting).with_batch_config(config).build(), waiting }
    }
}

impl SpanProcessor for BoundedProcessor {
    fn on_start(&self, span: &mut Span, context: &Context) {
        self.batches.on_start(span, context);
    }

    fn on_end(&self, span: SpanData) {
        if !span.span_context.is_sampled() {
            return;
        }
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= QUEUE_MAX {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            DROPPED.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.batches.on_end(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.batches.force_flush()
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.batches.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.batches.set_resource(resource);
    }
}

/// Counts what an exporter does, and says once when it begins to fail.
#[derive(Debug)]
struct Counting<E> {
    exporter: E,
    waiting: Arc<AtomicUsize>,
    failing: AtomicBool,
}

impl<E: SpanExporter> SpanExporter for Counting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let outcome = self.exporter.export(batch).await;
        self.waiting.fetch_sub(spans, Ordering::AcqRel);
        let count = if outcome.is_ok() { &EXPORTED } else { &FAILED };
        count.fetch_add(u64::try_from(spans).unwrap_or(u64::MAX), Ordering::Relaxed);
        let failed_before = self.failing.swap(outcome.is_err(), Ordering::Relaxed);
        match &outcome {
            Err(cause) if !failed_before => tracing::warn!(%cause, "traces are not exported, trying on"),
            Ok(()) if failed_before => tracing::info!("traces are exported again"),
            Ok(()) | Err(_) => {}
        }
        // A failure ends here: the processor would log each one again, as an error.
        Ok(())
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use opentelemetry::trace::{Span as _, Tracer, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use parking_lot::Mutex;

    use super::*;

    /// An exporter that waits for leave.
    #[derive(Debug)]
    struct Gated(Mutex<mpsc::Receiver<bool>>);

    impl SpanExporter for Gated {
        async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
            match self.0.lock().recv() {
                Ok(true) => Ok(()),
                Ok(false) | Err(_) => Err(opentelemetry_sdk::error::OTelSdkError::AlreadyShutdown),
            }
        }
    }

    #[test]
    fn a_stuck_collector_costs_spans_and_no_time() {
        let (leave, gate) = mpsc::channel();
        let processor = BoundedProcessor::new(Gated(Mutex::new(gate)));
        let waiting = Arc::clone(&processor.waiting);
        let provider = SdkTracerProvider::builder().with_span_processor(processor).build();
        let tracer = provider.tracer("test");
        let before = span_tally();
        for _ in 0..QUEUE_MAX + 100 {
            tracer.start("span").end();
        }
        assert_eq!(span_tally().dropped - before.dropped, 100);
        assert_eq!(waiting.load(Ordering::Acquire), QUEUE_MAX);
        leave.send(true).unwrap();
        drop(leave);
        assert!(provider.shutdown_with_timeout(Duration::from_secs(10)).is_ok());
        let after = span_tally();
        let (exported, failed) = (after.exported - before.exported, after.failed - before.failed);
        assert_eq!(exported + failed, u64::try_from(QUEUE_MAX).unwrap());
        assert_eq!(exported, u64::try_from(BATCH_MAX).unwrap());
        assert_eq!(waiting.load(Ordering::Acquire), 0);
    }
}
