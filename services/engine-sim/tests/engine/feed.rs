use engine_sim::{Config, EventFormat, HashForm};
use serde_json::{Value, json};
use zeromq::{DealerSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use crate::harness::{DEADLINE, Engine, Feed, config};

fn completion(first: u32, len: u32) -> Value {
    json!({"prompt": (first..first + len).collect::<Vec<_>>(), "max_tokens": 1})
}

async fn replay(engine: &Engine, from: u64) -> Vec<Vec<Vec<u8>>> {
    let mut dealer = DealerSocket::new();
    dealer.connect(engine.running.event_sources[0].replay_endpoint.as_ref().unwrap()).await.unwrap();
    let request: Vec<bytes::Bytes> = vec![bytes::Bytes::new(), from.to_be_bytes().to_vec().into()];
    dealer.send(ZmqMessage::try_from(request).unwrap()).await.unwrap();
    let mut messages = Vec::new();
    loop {
        let message = tokio::time::timeout(DEADLINE, dealer.recv()).await.unwrap().unwrap();
        let frames: Vec<Vec<u8>> = message.into_vec().iter().map(|frame| frame.to_vec()).collect();
        if frames[frames.len() - 2] == [0xff; 8] {
            messages.push(frames);
            return messages;
        }
        messages.push(frames);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_are_numbered_and_can_be_had_again() {
    let engine = Engine::start(config()).await;
    let mut feed = Feed::of(&engine, 0).await;
    let mut batches = Vec::new();
    for first in [200, 300, 400] {
        engine.post("/v1/completions", &completion(first, 40)).await;
        batches.push(feed.next().await);
    }
    let first = batches[0].seq;
    assert_eq!(engine.metric("engine_sim_event_batches_total").await, 3.0 + first as f64);
    assert!(batches.iter().zip(first..).all(|(batch, seq)| batch.seq == seq && batch.topic == "kv-events"));
    let replayed = replay(&engine, first + 1).await;
    let wanted = |batch: &crate::harness::Batch| {
        vec![vec![], b"kv-events".to_vec(), batch.seq.to_be_bytes().to_vec(), batch.payload.clone()]
    };
    let mut expected: Vec<_> = batches[1..].iter().map(wanted).collect();
    let end = vec![vec![], vec![], vec![0xff; 8], vec![]];
    expected.push(end.clone());
    assert_eq!(replayed, expected);
    assert_eq!(replay(&engine, 1000).await, [end]);
    assert_eq!(replay(&engine, 0).await.len() as u64, first + 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_old_layout_has_arrays_and_no_topic_in_replays() {
    let engine = Engine::start(Config { event_format: EventFormat::Array, ..config() }).await;
    let mut feed = Feed::of(&engine, 0).await;
    engine.post("/v1/completions", &completion(200, 40)).await;
    let batch = feed.next().await;
    let event = batch.events[0].as_array().unwrap();
    assert_eq!(
        (event.len(), &event[0], &event[4], &event[11]),
        (12, &json!("BlockStored"), &json!(16), &Value::Null)
    );
    let replayed = replay(&engine, batch.seq).await;
    assert_eq!(replayed[0], [vec![], batch.seq.to_be_bytes().to_vec(), batch.payload]);
    assert_eq!(replayed[1], [vec![], vec![0xff; 8], vec![]]);
    assert_eq!(engine.get("/version").await, r#"{"version":"0.23.0"}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_connects_to_a_subscriber_that_binds_and_comes_back_to_it() {
    let (mut feed, endpoint) = Feed::bound().await;
    let connecting = Config { kv_events: Some(endpoint), kv_events_bind: false, ..config() };
    let first = Engine::start(connecting.clone()).await;
    feed.warm_up(&first, 0).await;
    drop(first);
    let second = Engine::start(connecting).await;
    feed.warm_up(&second, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_rides_the_next_batch() {
    let engine = Engine::start(Config { event_hashes: HashForm::Int, ..config() }).await;
    let mut feed = Feed::of(&engine, 0).await;
    engine.post("/v1/completions", &completion(200, 40)).await;
    feed.next().await;
    engine.post("/reset_prefix_cache", &json!({})).await;
    engine.post("/v1/completions", &completion(200, 40)).await;
    let batch = feed.next().await;
    let kinds: Vec<_> = batch.events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["AllBlocksCleared", "BlockStored"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evictions_come_one_by_one_before_what_displaced_them() {
    let engine = Engine::start(Config { kv_blocks: 11, ..config() }).await;
    let mut feed = Feed::of(&engine, 0).await;
    engine.post("/v1/completions", &completion(200, 100)).await;
    let stored = feed.next().await.events.pop().unwrap()["block_hashes"].clone();
    engine.post("/v1/completions", &completion(400, 100)).await;
    let batch = feed.next().await;
    let removed: Vec<_> = batch.events.iter().filter(|event| event["type"] == "BlockRemoved").collect();
    let last_of_old = removed.iter().position(|event| event["block_hashes"][0] == stored[5]).unwrap();
    assert!(removed.iter().all(|event| event["block_hashes"].as_array().unwrap().len() == 1));
    assert_eq!(removed[last_of_old + 1]["block_hashes"][0], stored[4]);
    assert_eq!(batch.events.last().unwrap()["type"], "BlockStored");
    assert_eq!(batch.events.len(), removed.len() + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_engine_can_be_started_again_at_its_addresses() {
    let first = Engine::start(config()).await;
    let source = first.running.event_sources[0].clone();
    let again = Config {
        listen: first.running.addr,
        kv_events: Some(source.endpoint),
        kv_replay: source.replay_endpoint,
        ..config()
    };
    let mut engine = first;
    for _ in 0..5 {
        let mut feed = Feed::of(&engine, 0).await;
        engine.post("/v1/completions", &completion(200, 40)).await;
        assert!(feed.next().await.seq > 0);
        engine.running.stop().await;
        engine = Engine::start(again.clone()).await;
    }
}
