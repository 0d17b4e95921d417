//! `POST /v1/completions`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderMap;
use prompt::CompletionRequest;
use serde::Serialize;

use super::body::{self, json_body, refused};
use super::chat::StopReason;
use super::completion_stream::CompletionStream;
use super::head::Head;
use super::logprobs::{CompletionLogprobs, PromptLogprobs};
use super::usage::{PromptCount, Usage};
use super::{ApiError, Engine, Options, Prompt, sse, trace};
use crate::rank::Chunk;
use crate::reply::Finish;

/// Reply tokens of a request that sets no limit, as in vLLM.
const TOKENS_MAX_DEFAULT: u32 = 16;

/// Answers a completion request.
pub(crate) async fn completions(
    State(engine): State<Arc<Engine>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    json_body(&headers)?;
    let span = trace::generate(&headers);
    let options = body::parse::<Options>(&bytes)?;
    engine.check_model(options.model.as_deref())?;
    options.check(engine.max_model_len)?;
    let request = CompletionRequest::parse(&bytes).map_err(refused_prompt)?;
    let prompts = engine.completion_prompts(&request)?;
    span.record("prompt_tokens", prompts.iter().map(|prompt| i64::from(prompt.len())).sum::<i64>());
    let answer = CompletionAnswer::new(&engine, &options, &headers, &prompts);
    let prompts = prompts.into_iter().map(|mut prompt| {
        prompt.read_cache = !options.completion_prompt_logprobs();
        let limits = engine.limits(&prompt, &options, Some(TOKENS_MAX_DEFAULT))?;
        Ok((prompt, limits))
    });
    let prompts = prompts.collect::<Result<Vec<_>, ApiError>>()?;
    let generation = engine.generate(prompts, &options, &headers, &span)?;
    if options.streams() {
        let stream = CompletionStream::new(answer, &options, generation.replies);
        return Ok(sse::respond(generation.chunks, stream));
    }
    let replies = generation.finish().await?;
    Ok(Json(answer.whole(&replies)).into_response())
}

/// Words the absence of a prompt as vLLM does.
fn refused_prompt(error: prompt::Error) -> ApiError {
    if matches!(error, prompt::Error::Missing { .. }) {
        return ApiError::no_prompt();
    }
    if matches!(&error, prompt::Error::Refused { param, .. } if param == "prompt") {
        return ApiError::bad("You must pass at least one prompt");
    }
    refused(error)
}

/// What an answer tells beyond its text.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "four independent switches of the API")]
pub(super) struct Extras {
    pub(super) token_ids: bool,
    pub(super) echo: bool,
    pub(super) logprobs: bool,
    prompt_logprobs: bool,
}

impl Extras {
    fn of(options: &Options) -> Self {
        Self {
            token_ids: options.return_token_ids.unwrap_or(false),
            echo: options.echoes(),
            logprobs: options.completion_logprobs(),
            prompt_logprobs: options.completion_prompt_logprobs(),
        }
    }
}

/// What all parts of an answer share.
#[derive(Debug)]
pub(super) struct CompletionAnswer {
    pub(super) head: Head,
    /// Replies to each prompt.
    answers: u32,
    prompts: Vec<Vec<u32>>,
    pub(super) extras: Extras,
}

impl CompletionAnswer {
    fn new(engine: &Arc<Engine>, options: &Options, headers: &HeaderMap, prompts: &[Prompt]) -> Self {
        let count = PromptCount {
            tokens: prompts.iter().map(Prompt::len).sum(),
            in_full_blocks: None,
            image_tokens: 0,
            details: engine.prompt_tokens_details,
        };
        Self {
            head: Head::new(engine, "cmpl", headers, count),
            answers: options.answers(),
            prompts: prompts.iter().map(|prompt| prompt.tokens.clone()).collect(),
            extras: Extras::of(options),
        }
    }

    /// Returns the prompt that a reply continues.
    pub(super) fn prompt(&self, reply: u32) -> &[u32] {
        self.prompts.get((reply / self.answers) as usize).map_or(&[], Vec::as_slice)
    }

    fn whole<'a>(&'a self, replies: &'a [Chunk]) -> Completion<'a> {
        let head = &self.head;
        Completion {
            id: &head.id,
            object: "text_completion",
            created: head.created,
            model: &head.engine.model_name,
            choices: replies.iter().map(|reply| self.choice(reply)).collect(),
            service_tier: (),
            system_fingerprint: &head.engine.fingerprint,
            usage: head.usage(replies),
            kv_transfer_params: (),
            ec_transfer_params: (),
            metrics: (),
        }
    }

    fn choice<'a>(&'a self, reply: &'a Chunk) -> Choice<'a> {
        let extras = self.extras;
        let prompt = self.prompt(reply.index);
        let echoed = if extras.echo { self.head.engine.text(prompt) } else { String::new() };
        Choice {
            index: reply.index,
            text: echoed + &reply.text,
            logprobs: extras.logprobs.then(|| CompletionLogprobs::new(&self.head.engine, &reply.tokens)),
            finish_reason: reply.finish.as_ref().map(Finish::reason),
            stop_reason: StopReason::of(reply.finish.as_ref()),
            token_ids: extras.token_ids.then_some(&reply.tokens),
            prompt_logprobs: extras.prompt_logprobs.then(|| PromptLogprobs::new(&self.head.engine, prompt)),
            prompt_token_ids: extras.token_ids.then_some(prompt),
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
    kv_transfer_params: (),
    ec_transfer_params: (),
    metrics: (),
}

#[derive(Serialize)]
struct Choice<'a> {
    index: u32,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: StopReason<'a>,
    token_ids: Option<&'a Vec<u32>>,
    prompt_logprobs: Option<PromptLogprobs>,
    prompt_token_ids: Option<&'a [u32]>,
    routed_experts: (),
}
