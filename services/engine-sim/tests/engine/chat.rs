use serde_json::{Value, json};

use crate::harness::{Engine, config, events, user};

fn body(more: &Value) -> Value {
    let mut body =
        json!({"model": "tiny", "messages": [user("Name a harbor and a river, please.")], "max_tokens": 6});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn streamed_text(events: &[Value]) -> String {
    let texts = events.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    texts.collect()
}

#[tokio::test]
async fn a_stream_says_the_same_as_a_whole_answer() {
    let engine = Engine::start(config()).await;
    let (_, whole) = engine.chat(body(&json!({"return_token_ids": true}))).await;
    let options =
        json!({"stream": true, "return_token_ids": true, "stream_options": {"include_usage": true}});
    let (status, stream) = engine.chat(body(&options)).await;
    assert_eq!(status, 200);
    let events = events(&stream);
    assert_eq!(events.len(), 1 + 6 + 1 + 1);
    let choice = &whole["choices"][0];
    assert_eq!(streamed_text(&events), choice["message"]["content"]);
    let tokens: Vec<&Value> = events[1..7].iter().map(|event| &event["choices"][0]["token_ids"][0]).collect();
    assert_eq!(json!(tokens), choice["token_ids"]);
    assert_eq!(events[0]["prompt_token_ids"], whole["prompt_token_ids"]);
    assert_eq!(events[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(events[6]["choices"][0]["finish_reason"], "length");
    assert_eq!(events[7]["usage"]["total_tokens"], whole["usage"]["total_tokens"]);
    assert_eq!((events[7]["choices"].clone(), &events[8]), (json!([]), &json!("[DONE]")));
}

#[tokio::test]
async fn usage_is_streamed_only_if_asked_for() {
    let engine = Engine::start(config()).await;
    let with_usage = async |options: Value| {
        let (_, stream) = engine.chat(body(&json!({"stream": true, "stream_options": options}))).await;
        events(&stream).iter().filter(|event| event.get("usage").is_some()).count()
    };
    assert_eq!(with_usage(Value::Null).await, 0);
    assert_eq!(with_usage(json!({"include_usage": true})).await, 1);
    assert_eq!(with_usage(json!({"include_usage": true, "continuous_usage_stats": true})).await, 8);
}

#[tokio::test]
async fn equal_requests_get_equal_answers_and_other_seeds_others() {
    let engine = Engine::start(config()).await;
    let answer =
        async |more: Value| engine.chat(body(&more)).await.1["choices"][0]["message"]["content"].clone();
    let first = answer(json!({})).await;
    assert_eq!(first, answer(json!({})).await);
    assert_ne!(first, answer(json!({"seed": 5})).await);
    let (_, two) = engine.chat(body(&json!({"n": 2, "temperature": 0.7}))).await;
    assert_ne!(two["choices"][0]["message"]["content"], two["choices"][1]["message"]["content"]);
    assert_eq!(two["usage"]["completion_tokens"], 12);
}

#[tokio::test]
async fn every_way_to_end_has_its_reason() {
    let engine = Engine::start(config()).await;
    let end = async |more: Value| {
        let (_, answer) = engine.chat(body(&more)).await;
        let choice = answer["choices"][0].clone();
        (
            choice["finish_reason"].clone(),
            choice["stop_reason"].clone(),
            answer["usage"]["completion_tokens"].clone(),
        )
    };
    let (_, long) = engine.chat(body(&json!({"max_tokens": 40, "return_token_ids": true}))).await;
    let words = long["choices"][0]["message"]["content"].as_str().unwrap();
    let third = words.split_whitespace().nth(2).unwrap();
    let token = long["choices"][0]["token_ids"][2].clone();
    assert_eq!(end(json!({})).await, (json!("length"), Value::Null, json!(6)));
    assert_eq!(end(json!({"stop": third})).await, (json!("stop"), json!(third), json!(3)));
    assert_eq!(end(json!({"stop_token_ids": [token]})).await, (json!("stop"), token.clone(), json!(3)));
    assert_eq!(end(json!({"max_tokens": 1000})).await, (json!("stop"), Value::Null, json!(256)));
    assert_eq!(
        end(json!({"max_tokens": 300, "ignore_eos": true})).await,
        (json!("length"), Value::Null, json!(300))
    );
}

#[tokio::test]
async fn an_answer_is_found_in_the_cache_by_the_next_turn() {
    let engine = Engine::start(config()).await;
    let mut messages = vec![user("Tell a long story of the harbor, the river and the sea behind the hills.")];
    let mut cached = Vec::new();
    for _ in 0..3 {
        let (_, answer) = engine.chat(json!({"messages": messages, "max_tokens": 64})).await;
        cached.push(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap());
        messages.push(answer["choices"][0]["message"].clone());
        messages.push(user("And then?"));
    }
    assert_eq!(cached[0], 0);
    assert!(cached[1] >= 80 && cached[2] >= cached[1] + 64, "{cached:?}");
}

#[tokio::test]
async fn log_probabilities_have_the_shape_that_was_asked_for() {
    let engine = Engine::start(config()).await;
    let (_, answer) =
        engine.chat(body(&json!({"logprobs": true, "top_logprobs": 1, "prompt_logprobs": 0}))).await;
    let content = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    let text: String = content.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(text, answer["choices"][0]["message"]["content"]);
    assert_eq!(content[0]["top_logprobs"][0]["logprob"], content[0]["logprob"]);
    let prompt = answer["prompt_logprobs"].as_array().unwrap();
    assert_eq!(
        (prompt.len() as u64, &prompt[0]),
        (answer["usage"]["prompt_tokens"].as_u64().unwrap(), &Value::Null)
    );
}

#[tokio::test]
async fn a_request_id_names_the_answer() {
    let engine = Engine::start(config()).await;
    let request = engine.request("/v1/chat/completions", &body(&json!({}))).header("x-request-id", "req-42");
    assert_eq!(crate::harness::read(request).await.1["id"], "chatcmpl-req-42");
}
