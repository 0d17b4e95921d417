//! A reply's way through a rank as spans of its request's trace: `queue`, then `prefill`, then `decode`.

use tracing::Span;

/// Where a reply is, and the span that lasts as long.
#[derive(Debug)]
pub(crate) struct Stages {
    request: Span,
    present: Span,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Queue,
    Prefill,
    Decode,
}

impl Stages {
    /// Begins to wait.
    #[must_use]
    pub(crate) fn queued(request: Span) -> Self {
        let present = tracing::debug_span!(parent: &request, "queue");
        Self { request, present, stage: Stage::Queue }
    }

    /// Notes that blocks were found for it; a second time, after a preemption, it is still in the stage it was in.
    pub(crate) fn admitted(&mut self) {
        if self.stage == Stage::Queue {
            self.present = tracing::debug_span!(parent: &self.request, "prefill");
            self.stage = Stage::Prefill;
        }
    }

    /// Notes a token: the first one ends the prefill.
    pub(crate) fn token(&mut self, cached_tokens: u32) {
        if self.stage != Stage::Decode {
            self.request.record("cached_tokens", i64::from(cached_tokens));
            self.present = tracing::debug_span!(parent: &self.request, "decode");
            self.stage = Stage::Decode;
        }
    }
}
