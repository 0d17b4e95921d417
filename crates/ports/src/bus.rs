//! The event plane: at-most-once publish and subscribe, with requests.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tracing::Span;

use crate::Retry;

/// A dotted name; in patterns `*` stands for one part and a last `>` for one or more.
pub type Subject = String;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Where it goes.
    pub subject: Subject,
    /// Where an answer is expected.
    pub reply: Option<Subject>,
    /// Trace context and the like; names are lowercase ASCII.
    pub headers: Vec<(String, String)>,
    /// At most `Bus::payload_bytes_max`.
    pub payload: Bytes,
}

/// What a subscription yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A message.
    Message(Message),
    /// Messages were lost before the next one: the subscriber was too slow, or the link was down.
    Gap,
}

/// Whether the bus can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Messages flow.
    Up,
    /// Disconnected; reconnecting by itself.
    Down,
}

/// Why a bus call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The link is down and the message was not sent.
    #[error("bus is disconnected")]
    Disconnected,
    /// Nobody subscribes to the subject of a request.
    #[error("no responder on {subject}")]
    NoResponder {
        /// The request's subject.
        subject: Subject,
    },
    /// No answer in time.
    #[error("no answer on {subject} within {deadline:?}")]
    Timeout {
        /// The request's subject.
        subject: Subject,
        /// How long the caller waited.
        deadline: Duration,
    },
    /// The payload is larger than the bus carries.
    #[error("payload of {bytes} bytes exceeds the bus limit of {bytes_max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The subject or pattern is malformed.
    #[error("malformed subject {subject:?}")]
    Subject {
        /// As given.
        subject: Subject,
    },
}

impl Error {
    /// Says whether the same call may succeed later.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Disconnected | Self::NoResponder { .. } | Self::Timeout { .. } => {
                Retry::After(Duration::from_millis(250))
            }
            Self::TooLarge { .. } | Self::Subject { .. } => Retry::Never,
        }
    }
}

/// Publishes and subscribes; correctness never depends on delivery.
#[async_trait]
pub trait Bus: Send + Sync + std::fmt::Debug {
    /// Sends a message to the present subscribers of its subject; returns before they have it.
    async fn publish(&self, message: Message) -> Result<(), Error>;

    /// Sends a message and waits for one answer.
    async fn request(&self, message: Message, deadline: Duration) -> Result<Message, Error>;

    /// Subscribes; at most `queue_max` messages wait, then the oldest are dropped and a gap is reported.
    async fn subscribe(&self, pattern: &str, queue_max: usize) -> Result<Box<dyn Subscription>, Error>;

    /// Watches the link.
    fn link(&self) -> watch::Receiver<Link>;

    /// Returns the largest payload that can be published.
    fn payload_bytes_max(&self) -> usize;

    /// Makes a span a child of the trace that a message belongs to, before the span is first entered. A bus that knows
    /// nothing of traces leaves the span as it is.
    fn join_trace(&self, _span: &Span, _message: &Message) {}
}

/// One subscription; dropping it unsubscribes.
#[async_trait]
pub trait Subscription: Send + std::fmt::Debug {
    /// Waits for the next message; none once the bus is closed. Safe to cancel.
    async fn next(&mut self) -> Option<Received>;
}

/// Tells whether messages can be published on a subject: parts that are neither empty, blank nor wildcards.
#[must_use]
pub fn is_subject(subject: &str) -> bool {
    subject.split('.').all(is_literal)
}

/// Tells whether a pattern can be subscribed to.
#[must_use]
pub fn is_pattern(pattern: &str) -> bool {
    let mut parts = pattern.split('.').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        if !(is_literal(part) || part == "*" || (part == ">" && last)) {
            return false;
        }
    }
    true
}

/// Tells whether a subject falls under a pattern.
#[must_use]
pub fn matches(pattern: &str, subject: &str) -> bool {
    let mut parts = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, parts.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(part)) if wanted == part => {}
            _ => return false,
        }
    }
    parts.next().is_none()
}

fn is_literal(part: &str) -> bool {
    !part.is_empty() && !part.contains(['*', '>']) && !part.contains(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, subject: &str, expected: bool) {
        assert_eq!(matches(pattern, subject), expected, "{subject} under {pattern}");
    }

    #[test]
    fn wildcards_stand_for_parts() {
        check("a.b", "a.b", true);
        check("a.b", "a.b.c", false);
        check("a.b.c", "a.b", false);
        check("a.*", "a.b", true);
        check("a.*", "a.b.c", false);
        check("*.b", "a.b", true);
        check("a.>", "a.b", true);
        check("a.>", "a.b.c", true);
        check("a.>", "a", false);
        check(">", "a", true);
    }

    #[test]
    fn malformed_names_are_told_apart() {
        for (name, subject, pattern) in [
            ("a.b", true, true),
            ("a.*.b", false, true),
            ("a.>", false, true),
            ("a.>.b", false, false),
            ("a..b", false, false),
            ("", false, false),
            ("a.", false, false),
            ("a b", false, false),
            ("a.b*", false, false),
        ] {
            assert_eq!((is_subject(name), is_pattern(name)), (subject, pattern), "{name:?}");
        }
    }
}
