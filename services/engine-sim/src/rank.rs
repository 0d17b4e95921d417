//! The task that drives one data-parallel rank: steps back to back while there is work, asleep otherwise.
//!
//! ```text
//! commands ─► schedule ─► (simulated time) ─► complete ─► events ─► publisher
//!                 ▲                                  └──► tokens ─► requests
//!                 └───────────── next step ◄─────────────┘
//! ```
//! A request that is gone (its receiver dropped) is noticed before the next step, and its blocks are freed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::kv_publisher::EventSink;
use crate::reply::{Emission, Finish};
use crate::scheduler::{Limits, Output, Scheduler, Totals};
use crate::sequence::{NewSequence, SequenceId};
use crate::stages::Stages;
use crate::time_model::TimeModel;

const COMMANDS: usize = 1024;

/// Part of a reply, in order; the last one has `finish`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunk {
    /// Which of the request's answers it belongs to, from 0.
    pub(crate) index: u32,
    /// Prefix tokens that this answer's prompt found cached.
    pub(crate) cached_tokens: u32,
    /// Token ids.
    pub(crate) tokens: Vec<u32>,
    /// Text that has become certain.
    pub(crate) text: String,
    /// Why the reply ended.
    pub(crate) finish: Option<Finish>,
}

/// One answer to be generated.
#[derive(Debug)]
pub(crate) struct Job {
    /// The prompt and how it ends.
    pub(crate) sequence: NewSequence,
    /// Which of the request's answers it is.
    pub(crate) index: u32,
    /// Whether every token is sent at once, rather than all with the last.
    pub(crate) stream: bool,
    /// Where chunks go; has room for all of them.
    pub(crate) chunks: mpsc::Sender<Chunk>,
    /// Where it is, for the request's trace.
    pub(crate) stages: Stages,
}

#[derive(Debug)]
enum Command {
    Submit(Box<Job>),
    ResetPrefixCache(oneshot::Sender<bool>),
    ResetEncoderCache,
}

/// What a rank is doing, as of its last step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RankState {
    /// Sequences that hold blocks.
    pub(crate) running: usize,
    /// Sequences that wait.
    pub(crate) waiting: usize,
    /// Share of the pool in use, 0 to 1.
    pub(crate) usage: f64,
    /// Batches of events published: the number of the next one.
    pub(crate) event_batches: u64,
    /// Totals since the start.
    pub(crate) totals: Totals,
}

/// Why a rank takes no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// Its queue is full.
    #[error("the engine's queue is full")]
    Full,
    /// It has stopped.
    #[error("the engine is stopping")]
    Stopped,
}

/// The way to a rank.
#[derive(Clone, Debug)]
pub(crate) struct RankHandle {
    commands: mpsc::Sender<Command>,
    state: Arc<Mutex<RankState>>,
    /// Jobs submitted and not yet in `state`.
    queued: Arc<AtomicU32>,
}

impl RankHandle {
    /// Hands over all answers of a request, or none.
    ///
    /// # Errors
    /// When the rank is overloaded or gone: the request is to be refused.
    pub(crate) fn submit(&self, jobs: Vec<Job>) -> Result<(), Refused> {
        let permits = self.commands.try_reserve_many(jobs.len()).map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => Refused::Full,
            mpsc::error::TrySendError::Closed(()) => Refused::Stopped,
        })?;
        for (permit, job) in permits.zip(jobs) {
            self.queued.fetch_add(1, Ordering::Relaxed);
            permit.send(Command::Submit(Box::new(job)));
        }
        Ok(())
    }

    /// Forgets all cached blocks; `false` if some are in use, or the rank is gone.
    pub(crate) async fn reset_prefix_cache(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        let sent = self.commands.send(Command::ResetPrefixCache(answer)).await;
        sent.is_ok() && answered.await.unwrap_or(false)
    }

    /// Forgets all encoder outputs.
    pub(crate) async fn reset_encoder_cache(&self) {
        if self.commands.send(Command::ResetEncoderCache).await.is_err() {
            tracing::debug!("rank is gone");
        }
    }

    /// Returns what the rank is doing.
    #[must_use]
    pub(crate) fn state(&self) -> RankState {
        let mut state = *self.state.lock();
        state.waiting += self.queued.load(Ordering::Relaxed) as usize;
        state
    }
}

/// One rank: its scheduler and the requests that wait for its tokens.
#[derive(Debug)]
pub(crate) struct Rank {
    scheduler: Scheduler,
    time: TimeModel,
    waiting_max: usize,
    commands: mpsc::Receiver<Command>,
    requests: HashMap<SequenceId, Request>,
    next_id: SequenceId,
    state: Arc<Mutex<RankState>>,
    queued: Arc<AtomicU32>,
    events: Option<EventSink>,
    event_batches: u64,
}

#[derive(Debug)]
struct Request {
    stream: bool,
    chunk: Chunk,
    chunks: mpsc::Sender<Chunk>,
    stages: Stages,
}

impl Rank {
    /// Creates a rank with an empty cache; past `waiting_max` waiting sequences it leaves jobs in the queue.
    #[must_use]
    pub(crate) fn new(
        limits: Limits,
        time: TimeModel,
        waiting_max: usize,
        events: Option<EventSink>,
    ) -> (RankHandle, Self) {
        let (sender, commands) = mpsc::channel(COMMANDS);
        let (state, queued) = (Arc::<Mutex<RankState>>::default(), Arc::<AtomicU32>::default());
        let handle = RankHandle { commands: sender, state: Arc::clone(&state), queued: Arc::clone(&queued) };
        let rank = Self {
            scheduler: Scheduler::new(limits),
            time,
            waiting_max,
            commands,
            requests: HashMap::new(),
            next_id: 0,
            state,
            queued,
            events,
            event_batches: 0,
        };
        (handle, rank)
    }

    /// Runs until every handle is dropped or `stop` is cancelled.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = self.serve() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn serve(&mut self) {
        loop {
            if self.scheduler.is_idle() {
                self.report();
                let Some(command) = self.commands.recv().await else { return };
                self.obey(command);
            }
            while self.scheduler.waiting() < self.waiting_max
                && let Ok(command) = self.commands.try_recv()
            {
                self.obey(command);
            }
            self.drop_abandoned();
            if !self.scheduler.is_idle() {
                self.step().await;
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Submit(job) => {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                let chunk = Chunk { index: job.index, ..Chunk::default() };
                let Job { sequence, stream, chunks, stages, .. } = *job;
                let request = Request { stream, chunk, chunks, stages };
                self.requests.insert(self.next_id, request);
                self.scheduler.submit(self.next_id, sequence);
                self.next_id += 1;
            }
            Command::ResetPrefixCache(answer) => {
                if answer.send(self.scheduler.reset_prefix_cache()).is_err() {
                    tracing::debug!("nobody waits for the reset");
                }
            }
            Command::ResetEncoderCache => self.scheduler.reset_encoder_cache(),
        }
    }

    fn drop_abandoned(&mut self) {
        let requests = &mut self.requests;
        self.scheduler.abort(|id| {
            let gone = requests.get(&id).is_none_or(|request| request.chunks.is_closed());
            if gone {
                requests.remove(&id);
            }
            gone
        });
    }

    async fn step(&mut self) {
        let work = self.scheduler.schedule();
        for id in self.scheduler.take_admitted() {
            if let Some(request) = self.requests.get_mut(&id) {
                request.stages.admitted();
            }
        }
        self.report();
        let duration = self.time.duration(&work);
        if duration.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(duration).await;
        }
        let outputs = self.scheduler.complete();
        let events = self.scheduler.take_events();
        if let Some(sink) = self.events.as_ref().filter(|_| !events.is_empty()) {
            sink.publish(events).await;
            self.event_batches += 1;
        }
        self.report();
        for output in outputs {
            self.deliver(output);
        }
    }

    fn deliver(&mut self, output: Output) {
        let Some(request) = self.requests.get_mut(&output.id) else { return };
        request.stages.token(output.cached_tokens);
        let Emission { token, text, finish } = output.emission;
        let finished = finish.is_some();
        let chunk = &mut request.chunk;
        chunk.cached_tokens = output.cached_tokens;
        chunk.tokens.push(token);
        if chunk.text.is_empty() {
            chunk.text = text;
        } else {
            chunk.text.push_str(&text);
        }
        chunk.finish = finish;
        if request.stream || finished {
            let fresh = Chunk { index: chunk.index, ..Chunk::default() };
            let sent = request.chunks.try_send(std::mem::replace(chunk, fresh));
            if sent.is_err() {
                tracing::debug!("request is gone");
            }
        }
        if finished {
            self.requests.remove(&output.id);
        }
    }

    fn report(&self) {
        *self.state.lock() = RankState {
            running: self.scheduler.running(),
            waiting: self.scheduler.waiting(),
            usage: self.scheduler.usage(),
            event_batches: self.event_batches,
            totals: *self.scheduler.totals(),
        };
    }
}
