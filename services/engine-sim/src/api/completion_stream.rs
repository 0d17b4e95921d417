//! The streamed form of a completion.

use serde::Serialize;

use super::Options;
use super::chat::StopReason;
use super::completions::CompletionAnswer;
use super::logprobs::CompletionLogprobs;
use super::options::StreamUsage;
use super::sse::{Events, Render};
use super::usage::{LastUsage, RunningUsage};
use crate::rank::Chunk;
use crate::reply::Finish;

/// A streamed answer: one chunk for each token, perhaps usage, `[DONE]`.
pub(super) struct CompletionStream {
    answer: CompletionAnswer,
    usage: StreamUsage,
    unfinished: u32,
    cached_tokens: u32,
    /// Tokens of each reply so far.
    generated: Vec<u32>,
}

impl CompletionStream {
    /// Prepares to stream this many replies.
    pub(super) fn new(answer: CompletionAnswer, options: &Options, replies: u32) -> Self {
        let generated = vec![0; replies as usize];
        Self { answer, usage: options.stream_usage(), unfinished: replies, cached_tokens: 0, generated }
    }

    fn chunk<'a>(&'a self, choices: &'a [StreamChoice<'a>]) -> StreamChunk<'a> {
        StreamChunk {
            id: &self.answer.id,
            object: "text_completion",
            created: self.answer.created,
            model: &self.answer.engine.model_name,
            choices,
            usage: None,
            system_fingerprint: None,
        }
    }

    fn token(&self, reply: &Chunk, before: u32, events: &mut Events) {
        let answer = &self.answer;
        let first = before == 0;
        let prompt = answer.prompt(reply.index);
        let text = if first && answer.extras.echo {
            answer.engine.text(prompt) + &reply.text
        } else {
            reply.text.clone()
        };
        let finished = reply.finish.is_some();
        let tokens = u32::try_from(reply.tokens.len()).unwrap_or(u32::MAX);
        let choices = [StreamChoice {
            index: reply.index,
            text,
            logprobs: answer.extras.logprobs.then(|| CompletionLogprobs::new(&answer.engine, &reply.tokens)),
            finish_reason: reply.finish.as_ref().map(Finish::reason),
            stop_reason: StopReason::of(reply.finish.as_ref()),
            prompt_token_ids: (first && answer.extras.token_ids).then_some(prompt),
            token_ids: answer.extras.token_ids.then_some(&reply.tokens),
        }];
        let mut chunk = self.chunk(&choices);
        chunk.usage = self.running_usage(prompt, before.saturating_add(tokens));
        chunk.system_fingerprint = (finished && !self.usage.last).then_some(&answer.engine.fingerprint);
        events.push(&chunk);
    }

    fn running_usage(&self, prompt: &[u32], completion_tokens: u32) -> Option<StreamedUsage> {
        let prompt_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        self.usage.every.then_some(StreamedUsage::Running(RunningUsage {
            prompt_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            completion_tokens,
            completion_tokens_details: (),
        }))
    }

    fn totals(&self, events: &mut Events) {
        let usage = self.answer.count.usage(self.cached_tokens, self.generated.iter().sum());
        let mut chunk = self.chunk(&[]);
        chunk.usage = Some(StreamedUsage::Last(usage.into()));
        chunk.system_fingerprint = Some(&self.answer.engine.fingerprint);
        events.push(&chunk);
    }
}

impl Render for CompletionStream {
    fn render(&mut self, reply: Chunk, events: &mut Events) -> bool {
        let tokens = u32::try_from(reply.tokens.len()).unwrap_or(u32::MAX);
        self.cached_tokens = reply.cached_tokens;
        let before = self.generated.get_mut(reply.index as usize).map_or(0, |generated| {
            *generated += tokens;
            *generated - tokens
        });
        self.token(&reply, before, events);
        self.unfinished -= u32::from(reply.finish.is_some());
        let done = self.unfinished == 0;
        if done {
            if self.usage.last {
                self.totals(events);
            }
            events.push_done();
        }
        done
    }
}

#[derive(Serialize)]
struct StreamChunk<'a> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [StreamChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<StreamedUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum StreamedUsage {
    Running(RunningUsage),
    Last(LastUsage),
}

#[derive(Serialize)]
struct StreamChoice<'a> {
    index: u32,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: StopReason<'a>,
    prompt_token_ids: Option<&'a [u32]>,
    token_ids: Option<&'a Vec<u32>>,
}
