//! One chat through a frontend: what was promised, and what the engine then reported.

use serde_json::Value;

use crate::up::Up;

/// Promise and report of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) request_id: String,
    pub(crate) worker: String,
    pub(crate) reason: String,
    pub(crate) promised_prompt: u64,
    pub(crate) promised_cached: Option<u64>,
    pub(crate) prompt: u64,
    pub(crate) cached: u64,
    pub(crate) content: String,
}

/// Sends a chat and reads the answer to its end; streamed answers must end with usage.
pub(crate) async fn send(up: &Up, frontend: &str, body: &Value) -> Result<Outcome, String> {
    let request = up.http.post(format!("{frontend}/v1/chat/completions")).json(body);
    let answer = request.send().await.map_err(|cause| format!("not sent: {cause}"))?;
    let status = answer.status();
    let headers = answer.headers().clone();
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let text = answer.text().await.map_err(|cause| format!("{status}, cut off: {cause}"))?;
    if !status.is_success() {
        return Err(format!("{status}: {text}"));
    }
    let (content, usage) = if body["stream"] == true { streamed(&text)? } else { whole(&text)? };
    let number = |name: &str| header(name).and_then(|text| text.parse().ok());
    Ok(Outcome {
        request_id: header("x-request-id").unwrap_or_default(),
        worker: header("x-sightline-worker").unwrap_or_default(),
        reason: header("x-sightline-reason").unwrap_or_default(),
        promised_prompt: number("x-sightline-prompt-tokens").unwrap_or_default(),
        promised_cached: number("x-sightline-cached-tokens"),
        prompt: usage["prompt_tokens"].as_u64().ok_or_else(|| format!("no usage: {text}"))?,
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default(),
        content,
    })
}

fn whole(text: &str) -> Result<(String, Value), String> {
    let answer: Value = serde_json::from_str(text).map_err(|cause| format!("{cause}: {text}"))?;
    let content = answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
    Ok((content, answer["usage"].clone()))
}

fn streamed(text: &str) -> Result<(String, Value), String> {
    let mut content = String::new();
    let mut usage = Value::Null;
    let mut done = false;
    for data in text.lines().filter_map(|line| line.strip_prefix("data: ")) {
        if data == "[DONE]" {
            done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(data).map_err(|cause| format!("{cause}: {data}"))?;
        content.push_str(chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default());
        if chunk["usage"].is_object() {
            usage = chunk["usage"].clone();
        }
    }
    if done { Ok((content, usage)) } else { Err(format!("the stream ended early: {text}")) }
}
