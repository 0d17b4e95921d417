//! Recorded frames of real vLLM processes, over the wire, through the agent, into a replica.

use std::collections::HashMap;
use std::time::Duration;

use engine_events::{Config, Translator, vllm};
use identity::{KeyScope, MediaId, block_keys};
use ports::event_feed::Frame;
use ports::event_feed::conformance::Rig;

use crate::fixture::{frames, learned_ids, requests, spans};
use crate::publisher::{Layout, Publisher};
use crate::town::{Replica, Town};

const BLOCK_SIZE: u32 = 32;

async fn check(model: &str, mut publisher: Publisher, comparable_expected: usize) {
    let town = Town::new();
    let ids: HashMap<String, MediaId> = learned_ids(model);
    let mut replica = town.replica().await;
    let agent = town.agent(town.config(&publisher));
    publisher.connect().await;
    assert!(agent.ready().await);
    publisher.settle().await;
    let mut frames = (0_u64..).zip(frames(&format!("routing_{model}_a"))).peekable();
    // Tells which frames change the set, and so how many deltas are to come: a block stored twice changes nothing.
    let mut oracle = Translator::new(Config { block_size: BLOCK_SIZE, ..Config::default() });
    let mut comparable = 0;
    for request in requests(model) {
        if request.comparable {
            let root = KeyScope { cache_salt: &request.salt, ..KeyScope::default() }.root();
            let keys = block_keys(root, &request.prompt, &spans(&request, &ids), BLOCK_SIZE);
            assert_eq!(
                predict(&keys, request.prompt.len(), &replica),
                request.cached,
                "{model} {}",
                request.label
            );
            comparable += 1;
        }
        let mut last = replica.seq;
        while let Some((seq, (_, payload))) = frames.next_if(|(_, (label, _))| *label == request.label) {
            last += u64::from(!oracle.apply(&vllm::decode(&payload).unwrap_or_default()).is_empty());
            publisher.send(Frame { seq, payload: payload.into() }).await;
        }
        replica.hear(|replica| replica.seq == last).await;
    }
    assert_eq!(frames.next(), None, "every frame belongs to a request");
    assert_eq!(comparable, comparable_expected);
    agent.stop(Duration::ZERO).await;
}

fn predict(keys: &[identity::BlockKey], prompt: usize, replica: &Replica) -> u64 {
    let matched = keys.iter().take_while(|key| replica.keys.contains_key(key)).count() as u64;
    matched.min((prompt as u64 - 1) / u64::from(BLOCK_SIZE)) * u64::from(BLOCK_SIZE)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_tokens_of_tiny_vl_are_predicted() {
    check("tiny_vl", Publisher::bound(Layout::WithTopic).await, 77).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_tokens_of_qwen2_5_vl_are_predicted() {
    check("qwen2_5_vl", Publisher::connecting(Layout::WithTopic).await, 72).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cached_tokens_of_qwen3_vl_are_predicted() {
    check("qwen3_vl", Publisher::bound(Layout::WithoutTopic).await, 72).await;
}
