//! The requests of captures other than `routing_…`.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "fixtures have a known form")]

use crate::fixture::{ids, lines};

/// A request of any kind of a capture.
pub(crate) struct Completion {
    pub(crate) label: String,
    pub(crate) rank: u16,
    pub(crate) salt: String,
    pub(crate) prompt: Vec<u32>,
    /// What the engine said, where the body holds token ids and a rank is known.
    pub(crate) cached: Option<u64>,
}

/// Reads the requests of a capture; those right after a reset are not comparable, since the engine tells of it late.
pub(crate) fn completions(name: &str) -> Vec<Completion> {
    lines(&format!("{name}.requests.jsonl"))
        .iter()
        .map(|line| {
            let body = &line["body"];
            let label = line["label"].as_str().expect("label").to_owned();
            let prompt = ids(&body["prompt"]);
            let known = line["status"] == 200 && !prompt.is_empty() && !label.contains("after_reset");
            let details = &line["response"]["usage"]["prompt_tokens_details"];
            Completion {
                rank: line["headers"]["X-data-parallel-rank"].as_str().unwrap_or("0").parse().expect("rank"),
                salt: body["cache_salt"].as_str().unwrap_or_default().to_owned(),
                cached: known.then(|| details["cached_tokens"].as_u64().unwrap_or_default()),
                label,
                prompt,
            }
        })
        .collect()
}
