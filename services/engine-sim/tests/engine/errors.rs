use serde_json::{Value, json};

use crate::harness::{DEADLINE, Engine, config, read, user};

const CHAT: &str = "/v1/chat/completions";

#[tokio::test]
async fn bad_requests_are_refused_in_openai_s_shape() {
    let engine = Engine::start(config()).await;
    let check = async |path: &str, more: Value, status: u16, kind: &str, param: Value| {
        let mut body = if path == CHAT { json!({"messages": [user("x")]}) } else { json!({"prompt": "x"}) };
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (answered, error) = engine.post(path, &body).await;
        let error = &error["error"];
        let found = (answered, error["code"].clone(), error["type"].clone(), error["param"].clone());
        assert_eq!(found, (status, json!(status), json!(kind), param), "{more}: {error}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()));
    };
    let bad = "BadRequestError";
    check(CHAT, json!({"model": "other"}), 404, "NotFoundError", json!("model")).await;
    check(CHAT, json!({"max_tokens": 0}), 400, bad, json!("max_tokens")).await;
    check(CHAT, json!({"max_tokens": 40000}), 400, bad, json!("max_tokens")).await;
    check(CHAT, json!({"temperature": -1.0}), 400, bad, json!("temperature")).await;
    check(CHAT, json!({"n": 0}), 400, bad, Value::Null).await;
    check(CHAT, json!({"n": 2, "temperature": 0}), 400, bad, Value::Null).await;
    check(CHAT, json!({"cache_salt": ""}), 400, bad, json!("cache_salt")).await;
    check(CHAT, json!({"messages": []}), 400, bad, Value::Null).await;
    check(CHAT, json!({"messages": [user(5)]}), 400, "Bad Request", json!("body.messages[0].content")).await;
    check(CHAT, json!({"messages": [user("harbor ".repeat(40_000))]}), 400, bad, json!("input_tokens")).await;
    check(CHAT, json!({"tools": [{"type": "function", "function": {"name": "f"}}]}), 400, bad, Value::Null)
        .await;
    check(CHAT, json!({"stream_options": {"include_usage": true}}), 400, bad, json!("stream_options")).await;
    check(CHAT, json!({"mm_processor_kwargs": {"max_pixels": 5}}), 400, bad, json!("mm_processor_kwargs"))
        .await;
    check("/v1/completions", json!({"suffix": "y"}), 400, bad, json!("suffix")).await;
    check("/v1/completions", json!({"prompt": ""}), 400, bad, json!("prompt")).await;
    check("/v1/completions", json!({"prompt": null}), 400, bad, json!("prompt")).await;
    check("/v1/completions", json!({"prompt": []}), 400, bad, Value::Null).await;
    check("/v1/completions", json!({"prompt": [9999]}), 400, bad, Value::Null).await;
}

#[tokio::test]
async fn bodies_that_are_no_request_are_refused() {
    let engine = Engine::start(config()).await;
    let client = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
    let check = async |content_type: &str, body: &str| {
        let request =
            client.post(engine.url(CHAT)).header("content-type", content_type).body(body.to_owned());
        let (status, error) = read(request).await;
        assert_eq!((status, &error["error"]["type"]), (400, &json!("Bad Request")), "{body}: {error}");
    };
    check("application/json", r#"{"model":"#).await;
    check("application/json", "[1]").await;
    check("application/json", "{}").await;
    check("application/json", r#"{"messages":[{"role":"user","content":"x"}],"max_tokens":"four"}"#).await;
    check("text/plain", r#"{"messages":[{"role":"user","content":"x"}]}"#).await;
    assert_eq!(engine.get("/nope").await, r#"{"detail":"Not Found"}"#);
    assert_eq!(engine.get(CHAT).await, r#"{"detail":"Method Not Allowed"}"#);
}

#[tokio::test]
async fn a_body_of_70_mb_is_accepted() {
    let engine = Engine::start(config()).await;
    let body = json!({"messages": [user("x")], "max_tokens": 1, "padding": "y".repeat(70 << 20)});
    assert_eq!(engine.chat(body).await.0, 200);
}

#[tokio::test]
async fn a_start_that_cannot_succeed_says_why() {
    let engine = Engine::start(config()).await;
    let check = async |config, wanted: &str| {
        let error = format!("{:#}", engine_sim::start(config).await.unwrap_err());
        assert!(error.contains(wanted), "{error}");
    };
    check(engine_sim::Config { listen: engine.running.addr, ..config() }, "cannot listen on 127.0.0.1:")
        .await;
    check(engine_sim::Config { model_dir: "nowhere".into(), ..config() }, "nowhere").await;
    check(engine_sim::Config { block_size: 0, ..config() }, "block-size must be at least 1").await;
    let taken = engine.running.event_sources[0].endpoint.clone();
    check(engine_sim::Config { kv_events: Some(taken), ..config() }, "cannot publish events at").await;
}
