//! The router's own prompt, from a request's body alone, against the prompt that vLLM 0.32 reported.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "recordings have a known form, and a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use media_geometry::ImageSize;
use media_probe::{Probe, probe_whole};
use prompt::{ChatRequest, Clock, MediaFact, MediaSource, Model, ModelFiles, ModelOptions, media_id};
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn model(directory: &str) -> Model {
    let files = ModelFiles::read(&repository().join(directory)).unwrap();
    Model::new(&files, ModelOptions::default()).unwrap()
}

fn facts(request: &ChatRequest) -> Vec<MediaFact> {
    let fact = |part: &prompt::MediaPart| {
        let MediaSource::Data(uri) = &part.source else { panic!("recorded images are in the body") };
        let bytes = uri.decode(u64::MAX).unwrap();
        let Probe::Sized { width, height, .. } = probe_whole(&bytes) else { panic!("unreadable image") };
        MediaFact { index: part.index, id: media_id(&bytes), size: Some(ImageSize::new(width, height)) }
    };
    request.media().iter().map(fact).collect()
}

/// Predicts every answered request of a recording; answers how many there were.
fn check(recording: &str, model_directory: &str) -> usize {
    let model = model(model_directory);
    let path = repository().join("tests/fixtures/vllm").join(recording);
    let mut answered = 0;
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let record: Value = serde_json::from_str(line).unwrap();
        let Some(expected) = record["prompt_token_ids"].as_array() else { continue };
        let body = Bytes::from(record["body"].to_string());
        let request = ChatRequest::parse(&body).unwrap();
        let prompt = model.prompt(&request, &facts(&request), Clock::default()).unwrap();
        let expected: Vec<u32> =
            expected.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect();
        assert_eq!(prompt.tokens, expected, "{}", record["label"]);
        assert_eq!((prompt.keyed_tokens, prompt.fallback), (expected.len(), None), "{}", record["label"]);
        answered += 1;
    }
    answered
}

#[test]
fn prompts_equal_vllms_for_tiny_vl() {
    assert_eq!(check("routing_tiny_vl_a.requests.jsonl", "fixtures/models/tiny-vl"), 78);
}
