//! The streamed form of a chat answer.

use serde::Serialize;

use super::Options;
use super::chat::{Answer, StopReason};
use super::logprobs::ChatLogprobs;
use super::options::StreamUsage;
use super::sse::{Events, Render};
use super::usage::{LastUsage, RunningUsage};
use crate::rank::Chunk;
use crate::reply::Finish;

/// A streamed answer: role chunks, one chunk for each token, perhaps usage, `[DONE]`.
pub(super) struct ChatStream {
    answer: Answer,
    usage: StreamUsage,
    replies: u32,
    unfinished: u32,
    started: bool,
    cached_tokens: u32,
    /// Tokens so far: of each reply where running usage is wanted, of all at the end.
    generated: Vec<u32>,
}

impl ChatStream {
    /// Prepares to stream this many replies.
    pub(super) fn new(answer: Answer, options: &Options, replies: u32) -> Self {
        let generated = vec![0; replies as usize];
        let usage = options.stream_usage();
        Self { answer, usage, replies, unfinished: replies, started: false, cached_tokens: 0, generated }
    }

    fn chunk<'a>(&'a self, choices: &'a [StreamChoice<'a>]) -> StreamChunk<'a> {
        StreamChunk {
            id: &self.answer.id,
            object: "chat.completion.chunk",
            created: self.answer.created,
            model: &self.answer.engine.model_name,
            choices,
            usage: None,
            prompt_token_ids: None,
            prompt_text: None,
            system_fingerprint: None,
        }
    }

    fn running_usage(&self, completion_tokens: u32) -> Option<StreamedUsage> {
        let prompt_tokens = self.answer.count.tokens;
        self.usage.every.then_some(StreamedUsage::Running(RunningUsage {
            prompt_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            completion_tokens,
            completion_tokens_details: (),
        }))
    }

    fn start(&self, events: &mut Events) {
        for index in 0..self.replies {
            let choices = [StreamChoice {
                index,
                delta: Delta { role: Some("assistant"), content: "" },
                logprobs: None,
                finish_reason: None,
                stop_reason: None,
                token_ids: None,
            }];
            let mut chunk = self.chunk(&choices);
            chunk.usage = self.running_usage(0);
            chunk.prompt_token_ids = Some(self.answer.prompt_token_ids.as_deref());
            chunk.prompt_text = Some(());
            events.push(&chunk);
        }
    }

    fn token(&self, reply: &Chunk, generated: u32, events: &mut Events) {
        let logprobs = |alternatives| ChatLogprobs::new(&self.answer.engine, &reply.tokens, alternatives);
        let finished = reply.finish.is_some();
        let choices = [StreamChoice {
            index: reply.index,
            delta: Delta { role: None, content: &reply.text },
            logprobs: self.answer.logprobs.map(logprobs),
            finish_reason: reply.finish.as_ref().map(Finish::reason),
            stop_reason: finished.then(|| StopReason::of(reply.finish.as_ref())),
            token_ids: Some(self.answer.token_ids.then_some(&reply.tokens)),
        }];
        let mut chunk = self.chunk(&choices);
        chunk.usage = self.running_usage(generated);
        chunk.system_fingerprint = (finished && !self.usage.last).then_some(&self.answer.engine.fingerprint);
        events.push(&chunk);
    }

    fn totals(&self, events: &mut Events) {
        let usage = self.answer.count.usage(self.cached_tokens, self.generated.iter().sum());
        let mut chunk = self.chunk(&[]);
        chunk.usage = Some(StreamedUsage::Last(usage.into()));
        chunk.system_fingerprint = Some(&self.answer.engine.fingerprint);
        events.push(&chunk);
    }
}

impl Render for ChatStream {
    fn render(&mut self, reply: Chunk, events: &mut Events) -> bool {
        if !self.started {
            self.started = true;
            self.cached_tokens = reply.cached_tokens;
            self.start(events);
        }
        let tokens = u32::try_from(reply.tokens.len()).unwrap_or(u32::MAX);
        let generated = self.generated.get_mut(reply.index as usize).map_or(0, |generated| {
            *generated += tokens;
            *generated
        });
        self.token(&reply, generated, events);
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
    /// Only of the first chunks: null unless the prompt's ids were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<Option<&'a [u32]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_text: Option<()>,
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
