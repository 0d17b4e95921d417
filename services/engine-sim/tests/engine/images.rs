use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use serde_json::{Value, json};

use crate::harness::{Engine, config, repository, user};

fn file(name: &str) -> Vec<u8> {
    std::fs::read(repository().join("tests/fixtures/images").join(name)).unwrap()
}

fn data(name: &str) -> String {
    format!("data:image/png;base64,{}", base64::engine::general_purpose::STANDARD.encode(file(name)))
}

fn image(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn chat(parts: Vec<Value>) -> Value {
    let long = "harbor river quartz ".repeat(12);
    let content: Vec<Value> = [json!({"type": "text", "text": long})].into_iter().chain(parts).collect();
    json!({"messages": [user(content)], "max_tokens": 1})
}

/// Serves one image, and counts how often it was asked for.
async fn image_server() -> (String, Arc<AtomicU32>, tokio::task::JoinSet<()>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let serve = get(move || {
        count.fetch_add(1, Ordering::Relaxed);
        async { file("png-plain.png") }
    });
    let router = Router::new().route("/image", serve).route("/text", get(|| async { "no image" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, asked, tasks)
}

#[tokio::test]
async fn an_image_is_fetched_every_time_but_encoded_once() {
    let engine = Engine::start(config()).await;
    let (address, asked, _server) = image_server().await;
    let url = format!("{address}/image");
    let (status, first) = engine.chat(chat(vec![image(&url), image(&url)])).await;
    assert_eq!(status, 200, "{first}");
    let (_, by_query) = engine.chat(chat(vec![image(&format!("{url}?v=2"))])).await;
    let (_, by_data) = engine.chat(chat(vec![image(&data("png-plain.png"))])).await;
    assert_eq!(asked.load(Ordering::Relaxed), 3);
    assert_eq!(engine.metric("engine_sim_media_fetches_total").await, 3.0);
    assert_eq!(engine.metric("engine_sim_images_encoded_total").await, 1.0);
    let details = |answer: &Value| answer["usage"]["prompt_tokens_details"].clone();
    let cached = |answer: &Value| details(answer)["cached_tokens"].as_u64().unwrap();
    assert!(cached(&by_query) > 48, "the image is another by another URL");
    assert_eq!(cached(&by_data), cached(&by_query) + 16, "the image is another by its data");
    assert_eq!(
        details(&first)["multimodal_tokens"]["image"],
        2 * details(&by_data)["multimodal_tokens"]["image"].as_u64().unwrap()
    );
}

#[tokio::test]
async fn what_is_no_image_is_refused_as_vllm_does() {
    let engine = Engine::start(config()).await;
    let (address, _, _server) = image_server().await;
    let check = async |part: Value, status: u16| {
        let (answered, error) = engine.chat(chat(vec![part.clone()])).await;
        assert_eq!((answered, &error["error"]["code"]), (status, &json!(status)), "{part}: {error}");
    };
    check(image(&format!("{address}/none")), 422).await;
    check(image(&format!("{address}/text")), 400).await;
    check(image("http://127.0.0.1:1/refused"), 500).await;
    check(image(&data("not-an-image.txt")), 400).await;
    check(image("data:image/png;base64,@@@@"), 400).await;
    check(image("data:image/png,plain"), 501).await;
    check(image("ftp://x/y"), 400).await;
    check(image("file:///etc/passwd"), 500).await;
    check(json!({"type": "image_url", "image_url": "http://x/y"}), 400).await;
    check(json!({"type": "image_url", "image_url": null, "uuid": "unknown"}), 400).await;
    assert_eq!(engine.metric("engine_sim_media_fetch_failures_total").await, 2.0);
}

#[tokio::test]
async fn an_identity_without_data_works_until_the_cache_is_reset() {
    let engine = Engine::start(config()).await;
    let named = |url: Value| chat(vec![json!({"type": "image_url", "image_url": url, "uuid": "A"})]);
    assert_eq!(engine.chat(named(json!({"url": data("png-plain.png")}))).await.0, 200);
    let (status, answer) = engine.chat(named(Value::Null)).await;
    assert_eq!(status, 200);
    assert!(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 48);
    engine.post("/reset_mm_cache", &json!({})).await;
    let (status, error) = engine.chat(named(Value::Null)).await;
    let message = "Cache miss for image at index 0 but data is not provided.";
    assert_eq!((status, &error["error"]["message"]), (400, &json!(message)));
}
