//! Bad input gets the right status, in OpenAI's shape, at once, and nobody is alarmed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::images::PictureServer;
use crate::up::Up;

const ONE_SECOND: Duration = Duration::from_secs(1);

fn chat(content: &Value) -> String {
    json!({"model": "tiny-vl", "messages": [{"role": "user", "content": content}], "max_tokens": 1})
        .to_string()
}

fn image(url: &str) -> String {
    chat(&json!([{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": url}}]))
}

#[tokio::test]
async fn every_bad_request_is_answered_in_openai_shape() {
    let exempt = Up::start(&["--speed", "0", "--media-allow-net", "127.0.0.0/8"]).await;
    let pictures = PictureServer::start(&[]).await;
    let missing = format!("http://{}/missing.png", pictures.address);
    let cases: Vec<(&str, String, u16)> = vec![
        ("malformed JSON", "{\"model\": \"tiny-vl\", ".to_owned(), 400),
        ("a list for a body", "[]".to_owned(), 400),
        ("messages of the wrong type", json!({"model": "tiny-vl", "messages": "hi"}).to_string(), 400),
        ("model of the wrong type", json!({"model": 7, "messages": []}).to_string(), 400),
        ("no messages", json!({"model": "tiny-vl"}).to_string(), 400),
        ("empty messages", json!({"model": "tiny-vl", "messages": []}).to_string(), 400),
        (
            "unknown model",
            json!({"model": "nobody", "messages": [{"role": "user", "content": "hi"}]}).to_string(),
            404,
        ),
        ("bad base64", image("data:image/png;base64,@@@@"), 400),
        ("undecodable image", image("data:image/png;base64,aGVsbG8gd29ybGQgdGhpcyBpcyBubyBwbmc="), 400),
        ("image that is not there", image(&missing), 400),
        ("file URL", image("file:///etc/hostname"), 400),
        ("ftp URL", image("ftp://127.0.0.1/x.png"), 400),
        (
            "image_url as a bare string",
            chat(&json!([{"type": "image_url", "image_url": "http://x/y.png"}])),
            400,
        ),
    ];
    for (name, body, expected) in cases {
        let began = tokio::time::Instant::now();
        check(&exempt, name, body.into(), expected).await;
        assert!(began.elapsed() < ONE_SECOND, "{name} took {:?}", began.elapsed());
    }
    check(&exempt, "70 MB body", vec![b' '; 70 << 20].into(), 413).await;
    let errors: Vec<String> =
        exempt.loud_lines().into_iter().filter(|line| line.contains(" ERROR ")).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[tokio::test]
async fn a_loopback_url_needs_the_exemption() {
    let strict = Up::start(&["--speed", "0"]).await;
    let pictures = PictureServer::start(&crate::traffic::PICTURES).await;
    let url = pictures.url(crate::traffic::PICTURES[0]);
    check(&strict, "loopback URL without the exemption", image(&url).into(), 400).await;
    assert_eq!(pictures.served(), 0, "the refused URL was fetched");
}

async fn check(up: &Up, name: &str, body: reqwest::Body, expected: u16) {
    let request = up.http.post(format!("{}/v1/chat/completions", up.frontends[0]));
    let answer = request.header("content-type", "application/json").body(body).send().await.unwrap();
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    assert_eq!(status, expected, "{name}: {text}");
    let error: Value = serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{name}: {cause}: {text}"));
    for field in ["message", "type", "param", "code"] {
        assert!(error["error"].get(field).is_some(), "{name} lacks {field}: {text}");
    }
    assert!(!error["error"]["message"].as_str().unwrap().is_empty(), "{name}: {text}");
}
