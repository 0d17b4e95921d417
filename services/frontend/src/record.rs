//! What is remembered of a routed request.

use identity::{MediaId, ModelName};
use parking_lot::Mutex;
use placement::{
    Actual, Appraisal, Confidence, Decision, Doubt, Policy, Predicted, Reason, Unplaced, Verdict,
};
use serde_json::{Value, json};

/// One request: how it was seen, where it went, and what came of it.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) request_id: String,
    pub(crate) model: ModelName,
    pub(crate) policy: Policy,
    pub(crate) fallback: Option<&'static str>,
    pub(crate) block_size: u32,
    pub(crate) media: Vec<MediaReport>,
    pub(crate) decision: Option<Decision>,
    /// How holders looked where none was chosen.
    pub(crate) appraisals: Vec<Appraisal>,
    /// None where the prompt could not be predicted.
    pub(crate) predicted: Option<Predicted>,
    /// How the prompt is known to the worker.
    pub(crate) confidence: Confidence,
    pub(crate) outcome: Mutex<Outcome>,
}

/// What came of a request, once it is known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) actual: Option<Actual>,
    pub(crate) verdict: Option<Verdict>,
}

/// One media item, as routing saw it.
#[derive(Clone, Debug)]
pub(crate) struct MediaReport {
    pub(crate) index: usize,
    pub(crate) kind: &'static str,
    pub(crate) media_id: Option<MediaId>,
    pub(crate) width: Option<u32>,
    pub(crate) height: Option<u32>,
    pub(crate) tokens: Option<u32>,
    /// `data`, `url` or `uuid`.
    pub(crate) source: &'static str,
    pub(crate) fallback: Option<&'static str>,
}

impl Record {
    /// Copies what was known before placement, and adds where the request went.
    pub(crate) fn placed(
        &self,
        decision: Decision,
        (block_size, confidence): (u32, Confidence),
        predicted: Option<Predicted>,
    ) -> Self {
        let doubt = decision.choice().doubt;
        Self {
            request_id: self.request_id.clone(),
            model: self.model.clone(),
            policy: decision.policy,
            fallback: self.fallback.or(doubt.map(Doubt::as_str)),
            block_size,
            media: self.media.clone(),
            decision: Some(decision),
            appraisals: Vec::new(),
            predicted,
            confidence: if doubt.is_some() { Confidence::Unknown } else { confidence },
            outcome: Mutex::default(),
        }
    }

    /// Copies what was known before placement, and adds why nobody was chosen.
    pub(crate) fn unplaced(&self, unplaced: &Unplaced) -> Self {
        Self {
            request_id: self.request_id.clone(),
            model: self.model.clone(),
            policy: self.policy,
            fallback: self.fallback,
            block_size: self.block_size,
            media: self.media.clone(),
            decision: None,
            appraisals: unplaced.appraisals.clone(),
            predicted: None,
            confidence: Confidence::Unknown,
            outcome: Mutex::default(),
        }
    }

    fn choice(&self) -> Option<&Appraisal> {
        self.decision.as_ref().map(Decision::choice)
    }

    /// Returns why the worker was chosen.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.decision.as_ref().map(|decision| decision.reason)
    }

    /// Writes the answer of `explain`.
    pub(crate) fn explain(&self) -> Value {
        let outcome = *self.outcome.lock();
        let choice = self.choice();
        let candidates = self.decision.as_ref().map_or(&self.appraisals, |decision| &decision.appraisals);
        json!({
            "request_id": self.request_id,
            "model": self.model.as_str(),
            "worker": choice.map(|it| it.holder.worker.as_str()),
            "rank": choice.map(|it| it.holder.rank.0),
            "policy": self.policy.as_str(),
            "reason": self.reason().map(Reason::as_str),
            "fallback": self.fallback,
            "block_size": self.block_size,
            "blocks": self.predicted.map_or(0, |it| it.prompt_tokens / it.block_size.max(1)),
            "confidence": self.confidence.as_str(),
            "media": self.media.iter().map(MediaReport::json).collect::<Vec<_>>(),
            "candidates": candidates.iter().map(candidate).collect::<Vec<_>>(),
            "predicted": self.predicted.map(|it| json!({
                "prompt_tokens": it.prompt_tokens,
                "cached_tokens": it.cached_tokens,
            })),
            "actual": outcome.actual.map(|it| json!({
                "prompt_tokens": it.prompt_tokens,
                "cached_tokens": it.cached_tokens,
            })),
            "verdict": outcome.verdict.map(|it| it.as_str()),
        })
    }
}

impl MediaReport {
    fn json(&self) -> Value {
        json!({
            "index": self.index,
            "kind": self.kind,
            "media_id": self.media_id.as_ref().map(MediaId::as_str),
            "width": self.width,
            "height": self.height,
            "tokens": self.tokens,
            "source": self.source,
            "fallback": self.fallback,
        })
    }
}

fn candidate(appraisal: &Appraisal) -> Value {
    let cost = &appraisal.cost;
    json!({
        "worker": appraisal.holder.worker.as_str(),
        "rank": appraisal.holder.rank.0,
        "eligible": appraisal.eligible(),
        "why": appraisal.why.map(|it| it.as_str()),
        "cached_blocks": appraisal.work.cached_blocks,
        "cached_tokens": appraisal.work.cached_tokens,
        "media_resident": appraisal.media_resident,
        "doubt": appraisal.doubt.map(|it| it.as_str()),
        "cost_ms": {
            "queue": cost.queue,
            "fetch": cost.fetch,
            "encode": cost.encode,
            "prefill": cost.prefill,
            "decode": cost.decode,
            "pressure": cost.pressure,
            "total": cost.total(),
        },
    })
}
