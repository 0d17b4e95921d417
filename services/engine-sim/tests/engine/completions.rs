use serde_json::{Value, json};

use crate::harness::{Engine, config, events};

#[tokio::test]
async fn a_prompt_may_be_text_or_tokens_one_or_many() {
    let engine = Engine::start(config()).await;
    let check = async |prompt: Value, tokens: &[u64]| {
        let (status, answer) = engine
            .post("/v1/completions", &json!({"prompt": prompt, "max_tokens": 2, "return_token_ids": true}))
            .await;
        assert_eq!(status, 200, "{answer}");
        let choices = answer["choices"].as_array().unwrap();
        let found: Vec<u64> = choices
            .iter()
            .map(|choice| choice["prompt_token_ids"].as_array().unwrap().len() as u64)
            .collect();
        assert_eq!(found, tokens);
        assert_eq!(answer["usage"]["prompt_tokens"], tokens.iter().sum::<u64>());
        assert_eq!(answer["usage"]["completion_tokens"], 2 * tokens.len());
    };
    check(json!("Say this"), &[3]).await;
    check(json!(["one", "two"]), &[1, 1]).await;
    check(json!([5, 6, 7, 8]), &[4]).await;
    check(json!([[5, 6, 7, 8], [9]]), &[4, 1]).await;
}

#[tokio::test]
async fn a_stream_names_the_prompt_once_for_each_choice() {
    let engine = Engine::start(config()).await;
    let body = json!({"prompt": ["one", "two"], "max_tokens": 3, "stream": true, "return_token_ids": true, "echo": true});
    let (_, stream) = engine.post("/v1/completions", &body).await;
    let events = events(&stream);
    assert_eq!(events.len(), 7);
    let named = |index: u64| events[..6].iter().filter(move |event| event["choices"][0]["index"] == index);
    for (index, prompt) in [(0, "one"), (1, "two")] {
        let text: String = named(index).map(|event| event["choices"][0]["text"].as_str().unwrap()).collect();
        assert!(text.starts_with(prompt), "{text}");
        assert_eq!(
            named(index).filter(|event| event["choices"][0]["prompt_token_ids"].is_array()).count(),
            1
        );
    }
}

#[tokio::test]
async fn a_cached_prefix_is_told_and_a_salt_hides_it() {
    let engine = Engine::start(config()).await;
    let tokens: Vec<u32> = (100..180).collect();
    let cached = async |more: Value| {
        let mut body = json!({"prompt": tokens, "max_tokens": 1});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        engine.post("/v1/completions", &body).await.1["usage"]["prompt_tokens_details"]["cached_tokens"]
            .clone()
    };
    assert_eq!(cached(json!({})).await, 0);
    assert_eq!(cached(json!({})).await, 64);
    assert_eq!(cached(json!({"cache_salt": "salty"})).await, 0);
    assert_eq!(cached(json!({"cache_salt": "salty"})).await, 64);
    assert_eq!(cached(json!({"echo": true, "logprobs": 1})).await, 0);
    assert_eq!(cached(json!({"echo": true})).await, 64);
    let (_, reset) = engine.post("/reset_prefix_cache", &json!({})).await;
    assert_eq!(reset, json!({"success": true}));
    assert_eq!(cached(json!({})).await, 0);
}

#[tokio::test]
async fn tokens_and_text_are_translated_both_ways() {
    let engine = Engine::start(config()).await;
    let (_, tokens) =
        engine.post("/tokenize", &json!({"prompt": "Say this", "return_token_strs": true})).await;
    assert_eq!(
        tokens,
        json!({"count": 3, "max_model_len": 32752, "tokens": [50, 371, 1188], "token_strs": ["S", "ay", "Ġthis"]})
    );
    let (_, text) = engine.post("/detokenize", &json!({"tokens": [50, 371, 1188]})).await;
    assert_eq!(text, json!({"prompt": "Say this"}));
    let (_, chat) = engine.post("/tokenize", &json!({"messages": [{"role": "user", "content": "x"}]})).await;
    assert_eq!(chat["count"], 32);
}

#[tokio::test]
async fn the_engine_says_what_it_serves() {
    let engine = Engine::start(config()).await;
    let models: Value = serde_json::from_str(&engine.get("/v1/models").await).unwrap();
    let model = &models["data"][0];
    assert_eq!((&model["id"], &model["max_model_len"]), (&json!("tiny"), &json!(32752)));
    assert!(model["root"].as_str().unwrap().ends_with("tiny-vl"));
    assert_eq!(engine.get("/version").await, r#"{"version":"0.32.0"}"#);
    assert_eq!((engine.get("/health").await, engine.get("/ping").await), (String::new(), String::new()));
    let started = engine.metric("process_start_time_seconds").await;
    assert!(started > 1.7e9);
}
