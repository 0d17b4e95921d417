//! Forms with files, on paths that are passed on unread.

use http::{Method, StatusCode};
use serde_json::json;

use crate::rig::{MODEL, Rig, Whole, config, reply, whole};

const PATH: &str = "/v1/audio/transcriptions";
/// Bytes of the largest body.
const LIMIT: usize = 1 << 20;
/// Tokens of the worker's context: a quarter of the largest body's bytes would be far more.
const CONTEXT: u32 = 256;

async fn rig() -> Rig {
    let mut config = config();
    config.limits.body_bytes_max = LIMIT.try_into().unwrap();
    let mut rig = Rig::start_with(config).await;
    rig.worker_with("w0", |card| card.limits.context_tokens_max = CONTEXT, |_| reply(1, 0)).await;
    rig
}

/// A form of exactly so many bytes.
fn form(bytes: usize) -> String {
    let (open, close) = ("--x\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n", "\r\n--x--\r\n");
    [open, &"a".repeat(bytes - open.len() - close.len()), close].concat()
}

async fn send(rig: &Rig, body: &str) -> Whole {
    let headers = [("content-type", "multipart/form-data; boundary=x")];
    whole(rig.send(Method::POST, PATH, &headers, body).await).await
}

#[tokio::test]
async fn a_form_passes_whatever_its_size_up_to_the_limit_of_bodies() {
    let rig = rig().await;
    for bytes in [100, 64 << 10, LIMIT] {
        let body = form(bytes);
        let answer = send(&rig, &body).await;
        assert_eq!(answer.status, StatusCode::OK, "{bytes}: {:?}", answer.body);
        assert!(*rig.bodies().last().unwrap() == body, "{bytes}: the form was changed");
    }
    let passed = rig.bodies().len();
    let refused = send(&rig, &form(LIMIT + 1)).await;
    assert_eq!((refused.status, refused.code().as_str()), (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"));
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains(&LIMIT.to_string()), "{message}");
    assert_eq!(rig.bodies().len(), passed, "nothing of it reached an engine");
}

#[tokio::test]
async fn a_long_text_on_such_a_path_is_a_prompt_still() {
    let rig = rig().await;
    let body = json!({"model": MODEL, "input": "a".repeat(64 << 10)}).to_string();
    let answer = rig.post("/v1/embeddings", &body).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "context_length_exceeded"));
}
