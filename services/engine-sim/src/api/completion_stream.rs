//! The streamed form of a completion.

use serde::Serialize;

use super::Options;
use super::chat::StopReason;
use super::completions::CompletionAnswer;
use super::logprobs::CompletionLogprobs;
use super::sse::{Events, Render};
use super::streaming::{StreamChunk, Streaming};
use crate::rank::Chunk;
use crate::reply::Finish;

/// A streamed answer: one chunk for each token, perhaps usage, `[DONE]`.
pub(super) struct CompletionStream {
    answer: CompletionAnswer,
    streaming: Streaming,
}

const OBJECT: &str = "text_completion";

impl CompletionStream {
    /// Prepares to stream this many replies.
    pub(super) fn new(answer: CompletionAnswer, options: &Options, replies: u32) -> Self {
        Self { answer, streaming: Streaming::new(options, replies) }
    }

    fn token(&self, reply: &Chunk, generated: u32, events: &mut Events) {
        let (head, extras) = (&self.answer.head, self.answer.extras);
        let first = usize::try_from(generated).is_ok_and(|generated| generated == reply.tokens.len());
        let prompt = self.answer.prompt(reply.index);
        let echoed = if first && extras.echo { head.engine.text(prompt) } else { String::new() };
        let choices = [StreamChoice {
            index: reply.index,
            text: echoed + &reply.text,
            logprobs: extras.logprobs.then(|| CompletionLogprobs::new(&head.engine, &reply.tokens)),
            finish_reason: reply.finish.as_ref().map(Finish::reason),
            stop_reason: StopReason::of(reply.finish.as_ref()),
            prompt_token_ids: (first && extras.token_ids).then_some(prompt),
            token_ids: extras.token_ids.then_some(&reply.tokens),
        }];
        let prompt_tokens = u32::try_from(prompt.len()).unwrap_or(u32::MAX);
        let mut chunk = StreamChunk::new(head, OBJECT, &choices);
        chunk.usage = self.streaming.running_usage(prompt_tokens, generated);
        chunk.system_fingerprint = self.streaming.fingerprint(head, reply);
        events.push(&chunk);
    }
}

impl Render for CompletionStream {
    fn render(&mut self, reply: Chunk, events: &mut Events) -> bool {
        self.streaming.cached_tokens = reply.cached_tokens;
        let generated = self.streaming.count(&reply);
        self.token(&reply, generated, events);
        if self.streaming.is_over() {
            self.streaming.end(&self.answer.head, OBJECT, events);
        }
        self.streaming.is_over()
    }
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
