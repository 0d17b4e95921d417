//! The same requests as a real vLLM 0.32 answered: prompts, cached tokens and the structure of events must agree.

use std::collections::BTreeMap;

use base64::Engine as _;
use engine_sim::Config;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{Engine, Feed, config, repository};

#[derive(Deserialize)]
struct Recorded {
    label: String,
    body: Value,
    status: u16,
    prompt_token_ids: Option<Vec<u32>>,
    usage: Value,
}

#[derive(Deserialize)]
struct Frame {
    label: String,
    frames: Vec<String>,
}

fn lines<T: for<'a> Deserialize<'a>>(name: &str) -> Vec<T> {
    let text = std::fs::read_to_string(repository().join("tests/fixtures/vllm").join(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Numbers identities by first appearance: vLLM's own ones depend on the path of its model.
#[derive(Default)]
struct Identities(BTreeMap<String, usize>);

impl Identities {
    fn number(&mut self, keys: &Value) -> Value {
        let Some(keys) = keys.as_array() else { return keys.clone() };
        if let [Value::String(identity), offset @ Value::Number(_)] = keys.as_slice() {
            let next = self.0.len();
            return json!([self.0.entry(identity.clone()).or_insert(next), offset]);
        }
        keys.iter().map(|key| self.number(key)).collect()
    }

    /// Returns what two engines' events must have in common; generated tokens differ, so only prompts' are kept.
    fn shape(&mut self, event: &Value, prompt: Option<&[u32]>) -> Value {
        let tokens = event["token_ids"].as_array().map_or(0, Vec::len);
        let of_prompt = prompt.is_some_and(|prompt| {
            let text = serde_json::to_string(prompt).unwrap();
            let part = event["token_ids"].to_string();
            text.contains(part.trim_matches(['[', ']']))
        });
        json!({
            "type": event["type"],
            "hashes": event["block_hashes"].as_array().map(Vec::len),
            "tokens": if of_prompt { event["token_ids"].clone() } else { json!(tokens) },
            "extra_keys": self.number(&event["extra_keys"]),
            "first": event["parent_block_hash"].is_null(),
            "keys": event.as_object().unwrap().keys().collect::<Vec<_>>(),
            "rest": [&event["block_size"], &event["medium"], &event["group_idx"], &event["kv_cache_spec_kind"]],
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_hits_and_events_are_those_of_a_real_vllm() {
    let requests: Vec<Recorded> = lines("routing_tiny_vl_a.requests.jsonl");
    let mut recorded_batches: BTreeMap<String, Vec<Vec<Value>>> = BTreeMap::new();
    for frame in lines::<Frame>("routing_tiny_vl_a.frames.jsonl") {
        let payload = base64::engine::general_purpose::STANDARD.decode(&frame.frames[2]).unwrap();
        let (_, events, _): (f64, Vec<Value>, u64) = rmp_serde::from_slice(&payload).unwrap();
        recorded_batches.entry(frame.label).or_default().push(events);
    }
    let engine = Engine::start(Config { block_size: 32, kv_blocks: 4096, ..config() }).await;
    let mut feed = Feed::of(&engine, 0).await;
    let (mut real_names, mut our_names) = (Identities::default(), Identities::default());
    let mut compared = 0;
    for recorded in &requests {
        let (status, answer) = engine.chat(recorded.body.clone()).await;
        let label = &recorded.label;
        assert_eq!(status, recorded.status, "{label}: {answer}");
        let ours = feed.until_marker(&engine).await;
        let real = recorded_batches.remove(label).unwrap_or_default();
        let prompt = recorded.prompt_token_ids.as_deref().filter(|_| status == 200);
        if let Some(prompt) = prompt {
            assert_eq!(answer["prompt_token_ids"], json!(prompt), "{label}: prompt");
            assert_eq!(answer["usage"], recorded.usage, "{label}: usage");
            compared += 1;
        }
        let shapes = |batches: &[Vec<Value>], names: &mut Identities| -> Vec<Vec<Value>> {
            batches
                .iter()
                .map(|batch| batch.iter().map(|event| names.shape(event, prompt)).collect())
                .collect()
        };
        let ours: Vec<Vec<Value>> = ours.into_iter().map(|batch| batch.events).collect();
        assert_eq!(shapes(&ours, &mut our_names), shapes(&real, &mut real_names), "{label}: events");
    }
    assert_eq!((compared, recorded_batches.len()), (78, 0));
}
