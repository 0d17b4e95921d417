//! The router's own prompts and keys, from a request's body alone, against what vLLM 0.32 reported.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "recordings have a known form, and a test fails by panicking"
)]

mod events;
mod models;

use bytes::Bytes;
use events::Cache;
use identity::MediaId;
use media_geometry::ImageSize;
use media_probe::{Probe, probe_whole};
use prompt::{ChatRequest, MediaFact, MediaPart, MediaSource, Model, PrepareOptions, Prepared, media_id};
use serde_json::Value;

const BLOCK_SIZE: u32 = 32;

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(models::repository().join("tests/fixtures/vllm").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Sizes an image of a request from its bytes; its id is the client's, as the engine was given it.
fn fact(part: &MediaPart) -> MediaFact {
    let MediaSource::Data(uri) = &part.source else { panic!("recorded images are in the body") };
    let bytes = uri.decode(u64::MAX).unwrap();
    let Probe::Sized { width, height, .. } = probe_whole(&bytes) else { panic!("unreadable image") };
    let id = part.client_uuid.as_deref().map_or_else(|| media_id(&bytes), MediaId::new);
    MediaFact { index: part.index, id: Some(id), size: Some(ImageSize::new(width, height)) }
}

/// Prepares a recorded request, from its body alone.
fn prepare(model: &Model, record: &Value) -> (ChatRequest, Prepared) {
    let request = ChatRequest::parse(&Bytes::from(record["body"].to_string())).unwrap();
    let facts: Vec<MediaFact> = request.media().iter().map(fact).collect();
    let options = PrepareOptions { block_sizes: &[BLOCK_SIZE], ..PrepareOptions::default() };
    let prepared = model.prepare(&request, &facts, &options).unwrap();
    (request, prepared)
}

/// Compares every answered request of a recording; answers how many prompts and how many cache predictions it compared.
fn check(recording: &str, model: &Model) -> (usize, usize) {
    let frames = lines(&format!("{recording}.frames.jsonl"));
    let mut frames = frames.iter().peekable();
    let mut cache = Cache::default();
    let (mut prompts, mut predictions) = (0, 0);
    for record in lines(&format!("{recording}.requests.jsonl")) {
        let label = record["label"].as_str().unwrap();
        if let Some(expected) = record["prompt_token_ids"].as_array() {
            let expected: Vec<u32> =
                expected.iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect();
            let (request, prepared) = prepare(model, &record);
            assert_eq!(prepared.tokens, expected, "{label}");
            assert_eq!((prepared.keyed_tokens, prepared.fallback), (expected.len(), None), "{label}");
            let media = prepared.routing.mm_routing_info.total_image_tokens;
            let reported = record["usage"]["prompt_tokens_details"]["multimodal_tokens"]["image"].as_u64();
            // vLLM counts the tokens of its own ranges; a literal placeholder moves them, not their sum.
            assert_eq!(u64::from(media), reported.unwrap_or_default(), "{label}");
            prompts += 1;
            let named = request.media().iter().all(|part| part.client_uuid.is_some());
            if named && request.params().comparable() {
                assert_eq!(
                    cached(&cache, &prepared),
                    record["usage"]["prompt_tokens_details"]["cached_tokens"],
                    "{label}"
                );
                predictions += 1;
            }
        }
        while let Some(line) = frames.next_if(|line| line["label"] == record["label"]) {
            cache.apply(line);
        }
    }
    (prompts, predictions)
}

/// Predicts how many tokens of a prompt the engine finds in its cache.
fn cached(cache: &Cache, prepared: &Prepared) -> u32 {
    let keys = prepared.routing.chain(BLOCK_SIZE).unwrap();
    let matched = keys.iter().take_while(|key| cache.holds(**key)).count();
    let usable = (prepared.routing.prompt_tokens - 1) / BLOCK_SIZE;
    u32::try_from(matched).unwrap().min(usable) * BLOCK_SIZE
}

#[test]
fn prompts_and_keys_equal_vllms_for_tiny_vl() {
    assert_eq!(check("routing_tiny_vl_a", &models::tiny_vl()), (78, 48));
}

#[test]
fn prompts_and_keys_equal_vllms_for_qwen2_5_vl() {
    assert_eq!(check("routing_qwen2_5_vl_a", &models::qwen("qwen2_5_vl")), (72, 45));
}

#[test]
fn prompts_and_keys_equal_vllms_for_qwen3_vl() {
    assert_eq!(check("routing_qwen3_vl_a", &models::qwen("qwen3_vl")), (72, 45));
}
