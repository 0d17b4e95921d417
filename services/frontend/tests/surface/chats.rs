//! What reaches the engine, and what reaches the client.

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use ports::engine::memory::{Reply, Then};
use ports::media_source::memory::Resource;
use serde_json::json;

use crate::rig::{MODEL, Rig, SOON, chat, png, reply, until, whole};

#[tokio::test]
async fn a_text_body_passes_untouched() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(12, 0)).await;
    // Odd spacing, an unknown member and an escape must survive.
    let body = format!(
        "{{ \"model\":\"{MODEL}\",\n\"x_unknown\" : [1e3, null],\"messages\":[{{\"role\":\"user\",\"content\":\"\\u00e9 hi\"}}] }}"
    );
    let answer = rig.chat(&body).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    assert_eq!(rig.bodies(), [body.as_bytes()]);
    assert_eq!(answer.body, reply(12, 0).chunks[0]);
    let (_, sent) = &rig.engine.seen()[0];
    assert_eq!(sent.headers["x-data-parallel-rank"], "0");
    assert_eq!(sent.headers["x-request-id"].as_bytes(), answer.headers["x-request-id"].as_bytes());
}

#[tokio::test]
async fn headers_and_explain_tell_how_a_request_was_routed() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(12, 0)).await;
    let explained = rig.post("/v1/explain", &chat("hello there")).await.json();
    assert_eq!(rig.bodies().len(), 0);
    let predicted = explained["predicted"]["prompt_tokens"].as_u64().unwrap();

    let response = rig
        .send(Method::POST, "/v1/chat/completions", &[("x-request-id", "mine-1")], &chat("hello there"))
        .await;
    let answer = whole(response).await;
    assert_eq!(answer.header("x-request-id"), Some("mine-1"));
    assert_eq!(answer.header("x-sightline-worker"), Some("w0"));
    assert_eq!(answer.header("x-sightline-rank"), Some("0"));
    assert_eq!(answer.header("x-sightline-reason"), Some("load"));
    assert_eq!(answer.header("x-sightline-prompt-tokens"), Some(predicted.to_string().as_str()));
    assert_eq!(answer.header("x-sightline-cached-tokens"), Some("0"));
    assert_eq!(answer.header("x-sightline-fallback"), None);

    let record = rig.get("/v1/explain/mine-1").await.json();
    assert_eq!(record["worker"], "w0");
    assert_eq!(record["actual"], json!({"prompt_tokens": 12, "cached_tokens": 0}));
    assert_eq!(record["verdict"], if predicted == 12 { "match" } else { "template" });
    assert_eq!(record["candidates"][0]["eligible"], true);
    assert!(record["candidates"][0]["cost_ms"]["total"].is_number());
    assert_eq!(rig.get("/v1/explain/other").await.code(), "request_not_found");
}

#[tokio::test]
async fn data_images_get_their_identity_and_nothing_else_changes() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let (bytes, text) = png(56, 28);
    let part = |uuid: &str| {
        format!(r#"{{{uuid}"type": "image_url", "image_url": {{"url": "data:image/png;base64,{text}"}}}}"#)
    };
    let body = |part: &str| {
        format!(
            r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":[{{"type":"text","text":"a"}},{part}]}}]}}"#
        )
    };
    let answer = rig.chat(&body(&part(""))).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    let id = prompt::media_id(&bytes);
    assert_eq!(rig.bodies(), [body(&part(&format!("\"uuid\":\"{id}\","))).as_bytes()]);
    let request_id = answer.header("x-request-id").unwrap().to_owned();
    let media = rig.get(&format!("/v1/explain/{request_id}")).await.json()["media"][0].clone();
    assert_eq!((media["width"].as_u64(), media["height"].as_u64()), (Some(56), Some(28)));
    assert_eq!((media["media_id"].as_str(), media["source"].as_str()), (Some(id.as_str()), Some("data")));
    assert!(media["tokens"].as_u64().is_some(), "{media}");
}

#[tokio::test]
async fn images_behind_urls_are_fetched_once_and_handed_over() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let (bytes, text) = png(56, 28);
    let url = "http://origin.example/i.png?secret=1";
    rig.media.put(url, Resource { bytes: bytes.clone(), ..Resource::default() });
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}, "uuid": "mine"},
        {"type": "image_url", "image_url": {"url": url}},
    ]}]});
    assert_eq!(rig.chat(&body.to_string()).await.status, StatusCode::OK);
    assert_eq!(rig.media.fetches().len(), 1);
    let sent: serde_json::Value = serde_json::from_slice(&rig.bodies()[0]).unwrap();
    let id = prompt::media_id(&bytes);
    let handed = format!("data:image/png;base64,{text}");
    for part in sent["messages"][0]["content"].as_array().unwrap() {
        assert_eq!(part["uuid"], id.as_str());
        assert_eq!(part["image_url"]["url"], handed);
    }
    assert_eq!(sent["messages"][0]["content"][0]["image_url"]["detail"], "low");

    // The client's own name now stands for the bytes, for those who have them.
    let named = json!({"model": MODEL, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": null, "uuid": "mine"},
    ]}]});
    let answer = rig.chat(&named.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    let sent: serde_json::Value = serde_json::from_slice(&rig.bodies()[1]).unwrap();
    assert_eq!(sent["messages"][0]["content"][0]["uuid"], id.as_str());
    let unknown = named.to_string().replace("mine", "theirs");
    assert_eq!(rig.chat(&unknown).await.code(), "unknown_media_uuid");
}

#[tokio::test]
async fn events_pass_one_by_one() {
    let mut rig = Rig::start().await;
    let events = ["data: {\"a\":1}\n\n", "data: {\"usage\":{\"prompt_tokens\":3}}\n\n", "data: [DONE]\n\n"];
    rig.worker("w0", move |_| Reply::events(&events)).await;
    let body = chat("hi").replace("\"model\"", "\"stream\":true,\"model\"");
    let mut response = rig.send(Method::POST, "/v1/chat/completions", &[], &body).await;
    assert_eq!(response.headers["content-type"], "text/event-stream");
    let mut seen = Vec::new();
    while let Some(frame) = response.body.frame().await {
        seen.extend_from_slice(frame.unwrap().data_ref().unwrap());
    }
    assert_eq!(seen, events.concat().as_bytes());
}

#[tokio::test]
async fn a_client_that_leaves_cancels_the_engine() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| Reply::events(&["data: {}\n\n"]).then(Then::Hang)).await;
    let body = chat("hi").replace("\"model\"", "\"stream\":true,\"model\"");
    let mut response = rig.send(Method::POST, "/v1/chat/completions", &[], &body).await;
    let first = tokio::time::timeout(SOON, response.body.frame()).await.unwrap().unwrap().unwrap();
    assert_eq!(first.into_data().unwrap(), "data: {}\n\n");
    assert_eq!(rig.engine.cancelled(), 0);
    drop(response);
    until("the engine's work is cancelled", || rig.engine.cancelled() == 1).await;
    let load = rig.get("/admin/load").await.json();
    assert_eq!(load["holders"][0]["active_requests"], 0, "{load}");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_cancels_the_engine() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| Reply::events(&[]).then(Then::Hang)).await;
    {
        let body = chat("hi");
        let mut asking = Box::pin(rig.send(Method::POST, "/v1/chat/completions", &[], &body));
        let reached = until("the engine has the request", || {
            rig.engine.seen().iter().any(|(_, it)| it.path != "/health")
        });
        tokio::select! {
            _ = &mut asking => panic!("nothing was answered"),
            () = reached => {}
        }
    }
    until("the engine's work is cancelled", || rig.engine.cancelled() == 1).await;
    let metrics = String::from_utf8(rig.get("/metrics").await.body.to_vec()).unwrap();
    assert!(metrics.contains("status=\"499\"} 1"), "{metrics}");
}

#[tokio::test]
async fn completions_are_understood() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(3, 0)).await;
    let body = json!({"model": MODEL, "prompt": [5, 6, 7]}).to_string();
    let answer = rig.post("/v1/completions", &body).await;
    assert_eq!(answer.header("x-sightline-prompt-tokens"), Some("3"));
    assert_eq!(rig.engine.seen()[0].1.path, "/v1/completions");
    assert_eq!(rig.bodies(), [body.as_bytes()]);
}

#[tokio::test]
async fn other_paths_are_proxied_by_load() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |request| Reply::json(StatusCode::IM_A_TEAPOT, request.path.as_str())).await;
    let answer = rig.post("/v1/embeddings?x=1", &json!({"model": MODEL, "input": "a"}).to_string()).await;
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::IM_A_TEAPOT, &b"/v1/embeddings?x=1"[..]));
    let remote = json!({"model": MODEL, "input": [{"image_url": "http://10.0.0.1/"}]}).to_string();
    assert_eq!(rig.post("/v1/responses", &remote).await.code(), "media_url_refused");
}
