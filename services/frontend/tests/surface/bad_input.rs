//! Requests that are the client's fault.

use std::io::{Read, Write};
use std::net::TcpStream;

use bytes::Bytes;
use http::{Method, StatusCode};
use ports::media_source::memory::Resource;
use serde_json::json;

use crate::rig::{MODEL, Rig, chat, reply, whole};

fn image(url: &str) -> String {
    json!({"model": MODEL, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "a"},
        {"type": "image_url", "image_url": {"url": url}},
    ]}]})
    .to_string()
}

#[tokio::test]
async fn each_fault_has_its_answer() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let page = Resource { bytes: Bytes::from_static(b"<html>"), ..Resource::default() };
    rig.media.put("http://origin.example/page", page);
    let many: Vec<_> =
        (0..65).map(|_| json!({"type": "image_url", "image_url": {"url": "data:,"}})).collect();
    let many = json!({"model": MODEL, "messages": [{"role": "user", "content": many}]}).to_string();
    let table = [
        ("{", 400, "invalid_json"),
        ("", 400, "invalid_json"),
        ("[]", 400, "invalid_type"),
        ("\u{0}", 400, "invalid_json"),
        (&chat("x").replace("\"user\"", "7"), 400, "invalid_type"),
        (&chat("x").replace(MODEL, "other"), 404, "model_not_found"),
        (r#"{"model":"tiny-vl"}"#, 400, "missing_parameter"),
        (r#"{"model":"tiny-vl","messages":[]}"#, 400, "invalid_value"),
        (r#"{"model":"tiny-vl","messages":"hi"}"#, 400, "invalid_type"),
        (r#"{"model":7,"messages":[{"role":"user","content":"hi"}]}"#, 400, "invalid_type"),
        (&image("data:image/png;base64,!!!!"), 400, "invalid_media"),
        (&image("data:image/png;base64,"), 400, "invalid_media"),
        (&image("data:image/png,abc"), 400, "invalid_media"),
        (&image("data:image/png;base64,iVBORw0KGgo="), 400, "invalid_image"),
        (&image("http://origin.example/missing?token=secret"), 400, "media_fetch_failed"),
        (&image("http://origin.example/page"), 400, "invalid_image"),
        (&image("file:///etc/passwd"), 400, "media_url_refused"),
        (&image("ftp://origin.example/"), 400, "invalid_media"),
        (&many, 400, "invalid_media"),
    ];
    for (body, status, code) in table {
        let answer = rig.chat(body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{body:.200} {:?}",
            answer.body
        );
        let error = &answer.json()["error"];
        assert_eq!(error["type"], "invalid_request_error", "{body:.200}");
        assert!(!error["message"].as_str().unwrap().contains("secret"), "{error}");
        assert!(answer.headers.contains_key("x-request-id"));
    }
    assert!(rig.bodies().is_empty());
}

#[tokio::test]
async fn a_bad_image_is_named_by_its_index() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let (_, good) = crate::rig::png(28, 28);
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{good}")}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!!!"}},
    ]}]});
    let error = rig.chat(&body.to_string()).await.json()["error"].clone();
    assert!(error["message"].as_str().unwrap().contains("media item 1"), "{error}");
    assert!(error["param"].as_str().unwrap().starts_with("messages[0].content[1]"), "{error}");
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_told_by_its_index_and_what_to_do() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let (_, good) = crate::rig::png(28, 28);
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{good}")}},
        {"type": "image_url", "image_url": null, "uuid": "forgotten"},
    ]}]});
    let answer = rig.chat(&body.to_string()).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "unknown_media_uuid"));
    let error = answer.json()["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("media item 1") && message.contains("send its data"), "{error}");
    assert!(error["param"].as_str().unwrap().starts_with("messages[0].content[1]"), "{error}");
    assert!(rig.bodies().is_empty());
}

#[tokio::test]
async fn bodies_beyond_the_budget_are_shed() {
    let mut config = crate::rig::config();
    config.limits.held_bytes_max = 64 << 10;
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let slow = "http://slow.example/i.png";
    rig.media.put(slow, Resource { bytes: crate::rig::png(28, 28).0, ..Resource::default() });
    rig.media.hold(slow);
    let large = "x".repeat(40_000);
    let waiting = image(slow).replace("\"a\"", &format!("\"{large}\""));
    let meanwhile = async {
        crate::rig::until("the first body is held", || !rig.media.fetches().is_empty()).await;
        let shed = rig.chat(&chat(&large)).await;
        rig.media.release(slow);
        shed
    };
    let (held, shed) = tokio::join!(rig.chat(&waiting), meanwhile);
    assert_eq!(held.status, StatusCode::OK, "{:?}", held.body);
    assert_eq!((shed.status, shed.code().as_str()), (StatusCode::TOO_MANY_REQUESTS, "overloaded"));
    assert_eq!(shed.header("retry-after"), Some("1"));
    assert_eq!(rig.chat(&chat(&large)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_beyond_the_whole_budget_is_not_to_be_tried_again() {
    let mut config = crate::rig::config();
    config.limits.held_bytes_max = 64 << 10;
    let rig = Rig::start_with(config).await;
    let refused = rig.chat(&chat(&"x".repeat(100_000))).await;
    let got = (refused.status, refused.code(), refused.header("retry-after"));
    assert_eq!(got, (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large".to_owned(), None));
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("65536 bytes (limits.held_bytes_max)"), "{message}");
}

#[tokio::test]
async fn wrong_paths_methods_and_headers_are_told() {
    let rig = Rig::start().await;
    assert_eq!(rig.get("/nothing").await.status, StatusCode::NOT_FOUND);
    assert_eq!(rig.get("/v1/chat/completions").await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(rig.post("/metrics", "").await.status, StatusCode::METHOD_NOT_ALLOWED);
    let headers = [("x-sightline-policy", "best")];
    let answer = whole(rig.send(Method::POST, "/v1/chat/completions", &headers, &chat("hi")).await).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "invalid_value"));
    // A model whose files are here but that nobody serves now.
    assert_eq!(rig.chat(&chat("hi")).await.code(), "no_worker");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_is_refused_before_it_is_read() {
    let rig = Rig::start().await;
    let address = rig.frontend.address();
    let exchange = move |head: String, body: usize| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(crate::rig::SOON)).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..body >> 20 {
            stream.write_all(&chunk).unwrap();
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let head = |length: usize| {
        format!("POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n")
    };
    let announced = tokio::task::spawn_blocking(move || exchange(head(70 << 20), 0)).await.unwrap();
    let sent = tokio::task::spawn_blocking(move || exchange(head(70 << 20), 70 << 20)).await.unwrap();
    for answer in [announced, sent] {
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer:.200}");
        assert!(answer.contains("67108864") && answer.contains("body_too_large"), "{answer:.400}");
    }
    let bomb = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(crate::rig::SOON)).unwrap();
        stream.write_all(b"GET /health/live HTTP/1.1\r\n").unwrap();
        while stream.write_all(&[b"x-bomb: ".as_slice(), &[b'y'; 4096], b"\r\n"].concat()).is_ok() {}
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok();
        answer
    };
    let answer = tokio::task::spawn_blocking(bomb).await.unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{answer:?}");
}
