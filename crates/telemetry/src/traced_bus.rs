//! A bus whose messages carry the sender's trace.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::Bus;
use ports::bus::{Error, Link, Message, Subscription};
use tokio::sync::watch;
use tracing::Span;

use crate::propagation::{current_traceparent, set_parent};

const TRACEPARENT: &str = "traceparent";

/// A bus that puts the current span's `traceparent` into the headers of what is sent, and finds it in what came.
#[derive(Clone, Debug)]
pub struct TracedBus(Arc<dyn Bus>);

impl TracedBus {
    /// Wraps a bus.
    #[must_use]
    pub const fn over(bus: Arc<dyn Bus>) -> Self {
        Self(bus)
    }
}

/// Adds the current trace, unless the sender has named one.
fn stamp(mut message: Message) -> Message {
    if message.headers.iter().all(|(name, _)| name != TRACEPARENT)
        && let Some(traceparent) = current_traceparent()
    {
        message.headers.push((TRACEPARENT.to_owned(), traceparent));
    }
    message
}

#[async_trait]
impl Bus for TracedBus {
    async fn publish(&self, message: Message) -> Result<(), Error> {
        self.0.publish(stamp(message)).await
    }

    async fn request(&self, message: Message, deadline: Duration) -> Result<Message, Error> {
        self.0.request(stamp(message), deadline).await
    }

    async fn subscribe(&self, pattern: &str, queue_max: usize) -> Result<Box<dyn Subscription>, Error> {
        self.0.subscribe(pattern, queue_max).await
    }

    fn link(&self) -> watch::Receiver<Link> {
        self.0.link()
    }

    fn payload_bytes_max(&self) -> usize {
        self.0.payload_bytes_max()
    }

    fn join_trace(&self, span: &Span, message: &Message) {
        let named = message.headers.iter().find(|(name, _)| name == TRACEPARENT);
        if let Some((_, traceparent)) = named {
            set_parent(span, traceparent);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::{TraceContextExt, TracerProvider};
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use ports::InMemoryBus;
    use ports::bus::Received;
    use tracing::Instrument;
    use tracing_opentelemetry::OpenTelemetrySpanExt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn trace_of(span: &Span) -> String {
        span.context().span().span_context().trace_id().to_string()
    }

    #[tokio::test]
    async fn a_receivers_span_joins_the_senders_trace() {
        let provider = SdkTracerProvider::builder().build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let _default = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let bus = TracedBus::over(Arc::new(InMemoryBus::new()));
        let mut subscription = bus.subscribe("a", 2).await.unwrap();
        let message = || Message { subject: "a".to_owned(), ..Message::default() };
        let sender = tracing::info_span!("sender");
        set_parent(&sender, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        bus.publish(message()).instrument(sender.clone()).await.unwrap();
        bus.publish(message()).await.unwrap();
        let mut traces = Vec::new();
        for _ in 0..2 {
            let Some(Received::Message(received)) = subscription.next().await else { panic!("no message") };
            let receiver = tracing::info_span!("receiver");
            bus.join_trace(&receiver, &received);
            traces.push((trace_of(&receiver), received.headers.len()));
        }
        assert_eq!(traces[0], ("0af7651916cd43dd8448eb211c80319c".to_owned(), 1));
        assert_eq!(trace_of(&sender), traces[0].0);
        assert_ne!(traces[1].0, traces[0].0);
        assert_eq!(traces[1].1, 0);
    }
}
