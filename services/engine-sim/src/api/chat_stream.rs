//! The streamed form of a chat answer.

use serde::Serialize;

use super::Options;
use super::chat::{Answer, StopReason};
use super::logprobs::ChatLogprobs;
use super::sse::{Events, Render};
use super::streaming::{StreamChunk, Streaming};
use crate::rank::Chunk;
use crate::reply::Finish;

/// A streamed answer: role chunks, one chunk for each token, perhaps usage, `[DONE]`.
pub(super) struct ChatStream {
    answer: Answer,
    streaming: Streaming,
    replies: u32,
    started: bool,
}

const OBJECT: &str = "chat.completion.chunk";

impl ChatStream {
    /// Prepares to stream this many replies.
    pub(super) fn new(answer: Answer, options: &Options, replies: u32) -> Self {
        Self { answer, streaming: Streaming::new(options, replies), replies, started: false }
    }

    fn start(&self, events: &mut Events) {
        let head = &self.answer.head;
        for index in 0..self.replies {
            let choices = [StreamChoice {
                index,
                delta: Delta { role: Some("assistant"), content: "" },
                logprobs: None,
                finish_reason: None,
                stop_reason: None,
                token_ids: None,
            }];
            let mut chunk = StreamChunk::new(head, OBJECT, &choices);
            chunk.usage = self.streaming.running_usage(head.count.tokens, 0);
            chunk.prompt_token_ids = Some(self.answer.prompt_token_ids.as_deref());
            chunk.prompt_text = Some(());
            events.push(&chunk);
        }
    }

    fn token(&self, reply: &Chunk, generated: u32, events: &mut Events) {
        let head = &self.answer.head;
        let logprobs = |alternatives| ChatLogprobs::new(&head.engine, &reply.tokens, alternatives);
        let choices = [StreamChoice {
            index: reply.index,
            delta: Delta { role: None, content: &reply.text },
            logprobs: self.answer.logprobs.map(logprobs),
            finish_reason: reply.finish.as_ref().map(Finish::reason),
            stop_reason: reply.finish.is_some().then(|| StopReason::of(reply.finish.as_ref())),
            token_ids: Some(self.answer.token_ids.then_some(&reply.tokens)),
        }];
        let mut chunk = StreamChunk::new(head, OBJECT, &choices);
        chunk.usage = self.streaming.running_usage(head.count.tokens, generated);
        chunk.system_fingerprint = self.streaming.fingerprint(head, reply);
        events.push(&chunk);
    }
}

impl Render for ChatStream {
    fn render(&mut self, reply: Chunk, events: &mut Events) -> bool {
        if !self.started {
            self.started = true;
            self.streaming.cached_tokens = reply.cached_tokens;
            self.start(events);
        }
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
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<StopReason<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<Option<&'a Vec<u32>>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    content: &'a str,
}
