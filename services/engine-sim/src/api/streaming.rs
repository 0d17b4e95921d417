//! What streamed chats and completions have alike.

use serde::Serialize;

use super::Options;
use super::head::Head;
use super::options::StreamUsage;
use super::sse::Events;
use super::usage::{LastUsage, RunningUsage};
use crate::rank::Chunk;

/// How far a streamed answer has come.
pub(super) struct Streaming {
    usage: StreamUsage,
    unfinished: u32,
    /// Tokens of each reply so far.
    generated: Vec<u32>,
    /// Prompt tokens that came from the cache.
    pub(super) cached_tokens: u32,
}

impl Streaming {
    /// Prepares to stream this many replies.
    pub(super) fn new(options: &Options, replies: u32) -> Self {
        let generated = vec![0; replies as usize];
        Self { usage: options.stream_usage(), unfinished: replies, generated, cached_tokens: 0 }
    }

    /// Counts part of a reply, and returns how many tokens the reply has by now.
    pub(super) fn count(&mut self, reply: &Chunk) -> u32 {
        self.unfinished -= u32::from(reply.finish.is_some());
        let Some(generated) = self.generated.get_mut(reply.index as usize) else { return 0 };
        *generated += u32::try_from(reply.tokens.len()).unwrap_or(u32::MAX);
        *generated
    }

    /// Tells whether all replies are finished.
    pub(super) const fn is_over(&self) -> bool {
        self.unfinished == 0
    }

    /// Composes the `usage` of every chunk, where it is wanted.
    pub(super) fn running_usage(&self, prompt_tokens: u32, completion_tokens: u32) -> Option<StreamedUsage> {
        self.usage.every.then_some(StreamedUsage::Running(RunningUsage {
            prompt_tokens,
            total_tokens: prompt_tokens.saturating_add(completion_tokens),
            completion_tokens,
            completion_tokens_details: (),
        }))
    }

    /// Returns the fingerprint that the last chunk of a reply tells, unless a chunk of totals will.
    pub(super) fn fingerprint<'a>(&self, head: &'a Head, reply: &Chunk) -> Option<&'a str> {
        (reply.finish.is_some() && !self.usage.last).then_some(&head.engine.fingerprint)
    }

    /// Adds what ends a stream: totals, where they are wanted, and `[DONE]`.
    pub(super) fn end(&self, head: &Head, object: &'static str, events: &mut Events) {
        if self.usage.last {
            let usage = head.count.usage(self.cached_tokens, self.generated.iter().sum());
            let mut chunk = StreamChunk::<()>::new(head, object, &[]);
            chunk.usage = Some(StreamedUsage::Last(usage.into()));
            chunk.system_fingerprint = Some(&head.engine.fingerprint);
            events.push(&chunk);
        }
        events.push_done();
    }
}

/// One event of a stream.
#[derive(Serialize)]
pub(super) struct StreamChunk<'a, C> {
    id: &'a str,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: &'a [C],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) usage: Option<StreamedUsage>,
    /// Only of a chat's first chunks: null unless the prompt's ids were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_token_ids: Option<Option<&'a [u32]>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prompt_text: Option<()>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system_fingerprint: Option<&'a str>,
}

impl<'a, C> StreamChunk<'a, C> {
    /// Begins a chunk with what each of them tells.
    pub(super) fn new(head: &'a Head, object: &'static str, choices: &'a [C]) -> Self {
        Self {
            id: &head.id,
            object,
            created: head.created,
            model: &head.engine.model_name,
            choices,
            usage: None,
            prompt_token_ids: None,
            prompt_text: None,
            system_fingerprint: None,
        }
    }
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum StreamedUsage {
    Running(RunningUsage),
    Last(LastUsage),
}
