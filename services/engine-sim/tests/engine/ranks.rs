use engine_sim::Config;
use serde_json::{Value, json};

use crate::harness::{Engine, Feed, config, read};

async fn ask(engine: &Engine, rank: &str) -> (u16, Value) {
    let tokens: Vec<u32> = (200..264).collect();
    let request = engine.request("/v1/completions", &json!({"prompt": tokens, "max_tokens": 1}));
    read(request.header("x-data-parallel-rank", rank)).await
}

#[tokio::test]
async fn each_rank_has_its_own_blocks_and_its_own_feed() {
    let engine = Engine::start(Config { data_parallel_size: 2, ..config() }).await;
    let mut second = Feed::of(&engine, 1).await;
    let cached =
        async |rank| ask(&engine, rank).await.1["usage"]["prompt_tokens_details"]["cached_tokens"].clone();
    assert_eq!((cached("0").await, cached("0").await), (json!(0), json!(48)));
    assert_eq!((cached("1").await, cached("1").await), (json!(0), json!(48)));
    let batch = second.next().await;
    assert_eq!(
        (batch.rank, batch.events[0]["token_ids"][0].clone(), batch.topic.as_str()),
        (1, json!(200), "kv-events")
    );
    let sources: Value = serde_json::from_str(&engine.get("/kv_event_sources").await).unwrap();
    assert_eq!(sources["1"]["endpoint"], engine.running.event_sources[1].endpoint);
}

#[tokio::test]
async fn a_rank_that_is_not_there_is_refused_and_nonsense_is_ignored() {
    let engine = Engine::start(config()).await;
    let (status, error) = ask(&engine, "1").await;
    assert_eq!(
        (status, &error["error"]["message"]),
        (400, &json!("data_parallel_rank 1 is out of range [0, 1)."))
    );
    assert_eq!(ask(&engine, "zz").await.0, 200);
    assert_eq!(ask(&engine, "-1").await.0, 400);
}
