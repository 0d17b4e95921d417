//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use prompt::ChatRequest;
use serde::Serialize;
use tracing::Instrument as _;

use super::body::{self, json_body, refused};
use super::chat_stream::ChatStream;
use super::head::Head;
use super::logprobs::{ChatLogprobs, PromptLogprobs};
use super::usage::{PromptCount, Usage};
use super::{ApiError, Engine, Options, Prompt, sse, trace};
use crate::rank::Chunk;
use crate::reply::Finish;

/// Answers a chat request.
pub(crate) async fn chat(
    State(engine): State<Arc<Engine>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    json_body(&headers)?;
    let span = trace::generate(&headers);
    let options = body::parse::<Options>(&bytes)?;
    engine.check_model(options.model.as_deref())?;
    options.check_tools()?;
    options.check(engine.max_model_len)?;
    let request = ChatRequest::parse(&bytes).map_err(refused)?;
    let mut prompt = engine.chat_prompt(&request).instrument(span.clone()).await?;
    span.record("prompt_tokens", i64::from(prompt.len()));
    span.record("media", i64::try_from(prompt.scope.media.len()).unwrap_or(i64::MAX));
    prompt.read_cache = !options.chat_prompt_logprobs();
    let limits = engine.limits(&prompt, &options, None)?;
    let answer = Answer::new(&engine, &options, &headers, &prompt);
    let prompt_logprobs = (!prompt.read_cache).then(|| PromptLogprobs::new(&engine, &prompt.tokens));
    let generation = engine.generate(vec![(prompt, limits)], &options, &headers, &span)?;
    if options.streams() {
        let stream = ChatStream::new(answer, &options, generation.replies);
        return Ok(sse::respond(generation.chunks, stream));
    }
    let replies = generation.finish().await?;
    Ok(Json(answer.whole(&replies, prompt_logprobs)).into_response())
}

/// What all parts of an answer share.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) prompt_token_ids: Option<Vec<u32>>,
    pub(super) token_ids: bool,
    /// Alternatives told with each token's probability; `None` for no probabilities.
    pub(super) logprobs: Option<u32>,
}

impl Answer {
    fn new(engine: &Arc<Engine>, options: &Options, headers: &HeaderMap, prompt: &Prompt) -> Self {
        let token_ids = options.return_token_ids.unwrap_or(false);
        let block_size = engine.block_size;
        let count = PromptCount {
            tokens: prompt.len(),
            in_full_blocks: Some(prompt.len() / block_size * block_size),
            image_tokens: prompt.scope.media.iter().map(|item| item.len).sum(),
            details: engine.prompt_tokens_details,
        };
        Self {
            head: Head::new(engine, "chatcmpl", headers, count),
            prompt_token_ids: token_ids.then(|| prompt.tokens.clone()),
            token_ids,
            logprobs: options.chat_logprobs(),
        }
    }

    fn whole<'a>(&'a self, replies: &'a [Chunk], prompt_logprobs: Option<PromptLogprobs>) -> Completion<'a> {
        let head = &self.head;
        Completion {
            id: &head.id,
            object: "chat.completion",
            created: head.created,
            model: &head.engine.model_name,
            choices: replies.iter().map(|reply| self.choice(reply)).collect(),
            service_tier: (),
            system_fingerprint: &head.engine.fingerprint,
            usage: head.usage(replies),
            prompt_logprobs,
            prompt_token_ids: self.prompt_token_ids.as_deref(),
            prompt_text: (),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }
    }

    fn choice<'a>(&self, reply: &'a Chunk) -> Choice<'a> {
        Choice {
            index: reply.index,
            message: Message { content: &reply.text, ..Message::default() },
            logprobs: self
                .logprobs
                .map(|alternatives| ChatLogprobs::new(&self.head.engine, &reply.tokens, alternatives)),
            finish_reason: reply.finish.as_ref().map(Finish::reason),
            stop_reason: StopReason::of(reply.finish.as_ref()),
            token_ids: self.token_ids.then_some(&reply.tokens),
            routed_experts: (),
        }
    }
}

#[derive(Serialize)]
struct Completion<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: Vec<Choice<'a>>,
    service_tier: (),
    system_fingerprint: &'a str,
    usage: Usage,
    prompt_logprobs: Option<PromptLogprobs>,
    prompt_token_ids: Option<&'a [u32]>,
    prompt_text: (),
    kv_transfer_params: (),
    ec_transfer_params: (),
    metrics: (),
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    message: Message<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: StopReason<'a>,
    token_ids: Option<&'a Vec<u32>>,
    routed_experts: (),
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: &'a str,
    refusal: (),
    annotations: (),
    audio: (),
    function_call: (),
    reasoning: (),
}

impl Default for Message<'_> {
    fn default() -> Self {
        Self {
            role: "assistant",
            content: "",
            refusal: (),
            annotations: (),
            audio: (),
            function_call: (),
            reasoning: (),
        }
    }
}

/// What exactly ended a reply: null, a token, or a string.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum StopReason<'a> {
    /// The end token, or the limit.
    None(()),
    /// One of `stop_token_ids`.
    Token(u32),
    /// One of `stop`.
    Text(&'a str),
}

impl<'a> StopReason<'a> {
    /// Reads it from a finish.
    pub(crate) fn of(finish: Option<&'a Finish>) -> Self {
        match finish {
            None | Some(Finish::Stop | Finish::Length) => Self::None(()),
            Some(Finish::StopToken(token)) => Self::Token(*token),
            Some(Finish::StopText(text)) => Self::Text(text),
        }
    }
}
