//! Isolated tenants end to end: an engine's cache is never shared, and predictions say so.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::images::Picture;
use crate::settle::settled;
use crate::up::Up;

/// What was promised and found cached for a chat of a tenant, on one worker: (promised, cached, media id).
async fn chat(up: &Up, frontend: usize, tenant: &str, body: &Value) -> (u64, u64, String) {
    let base = &up.frontends[frontend];
    let request = up.http.post(format!("{base}/v1/chat/completions")).bearer_auth(format!("key-{tenant}"));
    let answer = request.header("x-sightline-worker", "w0").json(body).send().await.unwrap();
    let (status, headers) = (answer.status(), answer.headers().clone());
    let text = answer.text().await.unwrap();
    assert!(status.is_success(), "{status}: {text}\n{}", up.log());
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let usage = serde_json::from_str::<Value>(&text).unwrap()["usage"].clone();
    let explained = up.get(&format!("{base}/v1/explain/{}", header("x-request-id"))).await;
    settled(up).await;
    (
        header("x-sightline-cached-tokens").parse().unwrap(),
        usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap(),
        explained["media"][0]["media_id"].as_str().unwrap().to_owned(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_share_nothing_and_each_finds_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sightline.toml");
    let mut text = "[up]\ntenancy = \"isolated\"\n".to_owned();
    for tenant in ["north", "south"] {
        write!(text, "[[up.keys]]\nkey = \"key-{tenant}\"\ntenant = \"{tenant}\"\n").unwrap();
    }
    std::fs::write(&file, text).unwrap();
    let up = Up::start(&["--speed", "0", "--config", file.to_str().unwrap()]).await;
    let picture = Picture { width: 224, height: 168, seed: 7 };
    let words = "What is to be seen here, and where? ".repeat(8);
    let body = json!({"model": "tiny-vl", "max_tokens": 2, "temperature": 0, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": picture.data_uri()}},
        {"type": "text", "text": words},
    ]}]});
    let (promised, cached, north_id) = chat(&up, 0, "north", &body).await;
    assert_eq!((promised, cached), (0, 0));
    let (promised, cached, _) = chat(&up, 1, "north", &body).await;
    assert!(promised > 0 && promised == cached, "promised {promised}, cached {cached}");
    // The same worker has it all, for the other tenant nothing.
    let (promised, nothing, south_id) = chat(&up, 0, "south", &body).await;
    assert_eq!((promised, nothing), (0, 0));
    assert_ne!(north_id, south_id);
    for (tenant, frontend) in [("south", 1), ("north", 0)] {
        let (promised, found, _) = chat(&up, frontend, tenant, &body).await;
        assert_eq!((promised, found), (cached, cached), "{tenant}");
    }
    // A client's own salt is a cache of its own within the tenant.
    let mut salted = body.clone();
    salted["cache_salt"] = json!("mine");
    for expected in [0, cached] {
        let (promised, found, _) = chat(&up, 0, "north", &salted).await;
        assert_eq!((promised, found), (expected, expected));
    }
    let (_, found, _) = chat(&up, 0, "south", &salted).await;
    assert_eq!(found, 0);
}
