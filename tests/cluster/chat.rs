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

/// Why a chat was not answered to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nobody took the connection: another frontend may be asked.
    Unsent(String),
    /// The connection ended before an answer began.
    Broken(String),
    /// The answer is an error.
    Refused(String),
    /// The answer began and did not end well.
    CutOff {
        /// Who gave it.
        worker: String,
        /// What is wrong with it.
        why: String,
    },
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Unsent(why) | Self::Broken(why) | Self::Refused(why) | Self::CutOff { why, .. }) = self;
        f.write_str(why)
    }
}

/// Sends a chat and reads the answer to its end; streamed answers must end with usage.
pub(crate) async fn send(up: &Up, frontend: &str, body: &Value) -> Result<Outcome, String> {
    post(&up.http, frontend, body, None).await.map_err(|failure| failure.to_string())
}

/// As [`send`], to a worker where one is named.
pub(crate) async fn post(
    http: &reqwest::Client,
    frontend: &str,
    body: &Value,
    worker: Option<&str>,
) -> Result<Outcome, Failure> {
    let mut request = http.post(format!("{frontend}/v1/chat/completions")).json(body);
    if let Some(worker) = worker {
        request = request.header("x-sightline-worker", worker);
    }
    let answer = request.send().await.map_err(|cause| {
        let why = format!("not sent: {cause:?}");
        if cause.is_connect() { Failure::Unsent(why) } else { Failure::Broken(why) }
    })?;
    let status = answer.status();
    let headers = answer.headers().clone();
    let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let worker = header("x-sightline-worker").unwrap_or_default();
    let cut_off = |why: String| Failure::CutOff { worker: worker.clone(), why };
    let text = answer.text().await.map_err(|cause| cut_off(format!("{status}, cut off: {cause:?}")))?;
    if !status.is_success() {
        return Err(Failure::Refused(format!("{status}: {text}")));
    }
    let read = if body["stream"] == true { streamed(&text) } else { whole(&text) };
    let (content, usage) = read.map_err(cut_off)?;
    let number = |name: &str| header(name).and_then(|text| text.parse().ok());
    let prompt = usage["prompt_tokens"].as_u64();
    Ok(Outcome {
        request_id: header("x-request-id").unwrap_or_default(),
        reason: header("x-sightline-reason").unwrap_or_default(),
        promised_prompt: number("x-sightline-prompt-tokens").unwrap_or_default(),
        promised_cached: number("x-sightline-cached-tokens"),
        prompt: prompt.ok_or_else(|| cut_off(format!("no usage: {text}")))?,
        cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or_default(),
        content,
        worker,
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
