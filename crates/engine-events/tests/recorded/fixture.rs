//! Reads `tests/fixtures/vllm`.
#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "fixtures have a known form")]

use std::collections::HashMap;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use engine_events::{EngineHash, Event, ExtraKey, ExtraKeys, vllm};
use identity::{MediaId, MediaSpan};
use serde_json::Value;

/// One image of a request.
pub(crate) struct Image {
    pub(crate) uuid: Option<String>,
    pub(crate) url: String,
}

/// A chat request with what the engine answered.
pub(crate) struct Request {
    pub(crate) label: String,
    pub(crate) salt: String,
    pub(crate) images: Vec<Image>,
    pub(crate) prompt: Vec<u32>,
    pub(crate) cached: u64,
    /// Whether it was executed and read the cache.
    pub(crate) comparable: bool,
    placeholder: u32,
}

impl Request {
    /// Lists the runs of placeholders: first token and length.
    pub(crate) fn runs(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (index, token) in (0_u32..).zip(&self.prompt) {
            match runs.last_mut() {
                _ if *token != self.placeholder => {}
                Some((start, length)) if *start + *length == index => *length += 1,
                _ => runs.push((index, 1)),
            }
        }
        runs
    }
}

pub(crate) fn lines(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/vllm").join(name);
    let text = std::fs::read_to_string(&path).expect("fixture exists");
    text.lines().map(|line| serde_json::from_str(line).expect("fixture is JSON lines")).collect()
}

/// Reads the live frames of a capture: label, rank's payload.
pub(crate) fn frames(name: &str) -> Vec<(String, Vec<u8>)> {
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    lines(&format!("{name}.frames.jsonl"))
        .iter()
        .filter(|line| line["sock"].as_str() != Some("replay"))
        .map(|line| {
            let payload = line["frames"].as_array().and_then(|frames| frames.last()).expect("frames");
            (text(&line["label"]), bytes(payload))
        })
        .collect()
}

pub(crate) fn bytes(base64: &Value) -> Vec<u8> {
    STANDARD.decode(base64.as_str().expect("text")).expect("base64")
}

pub(crate) fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().into_iter().flatten();
    ids.map(|id| u32::try_from(id.as_u64().expect("token")).expect("token")).collect()
}

pub(crate) fn requests(model: &str) -> Vec<Request> {
    let placeholder = if model == "tiny_vl" { 4094 } else { 151_655 };
    lines(&format!("routing_{model}_a.requests.jsonl"))
        .iter()
        .map(|line| {
            let body = &line["body"];
            let parts = body["messages"].as_array().into_iter().flatten();
            let parts = parts.flat_map(|message| message["content"].as_array().into_iter().flatten());
            let images = parts.filter(|part| part["type"] == "image_url").map(|part| Image {
                uuid: part["uuid"].as_str().map(str::to_owned),
                url: part["image_url"]["url"].as_str().expect("data URI").to_owned(),
            });
            Request {
                label: line["label"].as_str().expect("label").to_owned(),
                salt: body["cache_salt"].as_str().unwrap_or_default().to_owned(),
                images: images.collect(),
                prompt: ids(&line["prompt_token_ids"]),
                cached: line["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default(),
                comparable: line["status"] == 200 && body["prompt_logprobs"].is_null(),
                placeholder,
            }
        })
        .collect()
}

/// Where a request's images stand in its prompt, under the ids they were given or the engine gave them.
///
/// An image that never stood in a full block was never named, and any id does.
pub(crate) fn spans(request: &Request, ids: &HashMap<String, MediaId>) -> Vec<MediaSpan> {
    let runs = request.runs();
    assert!(request.images.is_empty() || request.images.len() == runs.len(), "{}", request.label);
    let id = |image: &Image| {
        let given = image.uuid.as_deref().map(MediaId::new);
        given.or_else(|| ids.get(&image.url).cloned()).unwrap_or_else(|| MediaId::new(&image.url))
    };
    let images = request.images.iter().zip(runs);
    images.map(|(image, (start, len))| MediaSpan { key: id(image).key(), start, len }).collect()
}

/// Finds which id the engine gave to each image, by what its events say of the request that brought the image first.
pub(crate) fn learned_ids(model: &str) -> HashMap<String, MediaId> {
    let mut starts: HashMap<EngineHash, i64> = HashMap::new();
    let mut by_position: HashMap<(String, i64), MediaId> = HashMap::new();
    for (label, payload) in frames(&format!("routing_{model}_a")) {
        for event in vllm::decode(&payload).expect("decodes").events {
            let Event::Stored(stored) = event else { continue };
            let size = i64::from(stored.block_size);
            let mut start = stored.parent.map_or(0, |parent| starts[&parent] + size);
            let ExtraKeys::Listed(lists) = stored.extra_keys else { continue };
            for (hash, list) in stored.hashes.into_iter().zip(lists) {
                starts.insert(hash, start);
                for key in list {
                    if let ExtraKey::Media { id, offset } = key {
                        by_position.insert((label.clone(), start + offset), MediaId::new(&id));
                    }
                }
                start += size;
            }
        }
    }
    let mut ids = HashMap::new();
    for request in requests(model) {
        for (image, (start, _)) in request.images.iter().zip(request.runs()) {
            let seen = by_position.get(&(request.label.clone(), i64::from(start)));
            if let (None, Some(id)) = (&image.uuid, seen) {
                ids.insert(image.url.clone(), id.clone());
            }
        }
    }
    ids
}
