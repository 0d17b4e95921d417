//! The actor's side towards its own next life: checkpoints.

use std::sync::Arc;

use actor_kit::{Failed, Full, Reply};
use bytes::Bytes;
use engine_events::Record;
use tokio::task::spawn_blocking;

use super::session::Session;
use super::{EngineFeedArgs, MAILBOX_MAX, Msg, STORE_DEADLINE, Stamp, State, name};

impl State {
    pub(super) fn save(&mut self) -> Result<(), Full> {
        let Some(session) = self.session.as_ref().filter(|session| session.is_caught_up()) else {
            return Ok(());
        };
        let stamp = session.stamp();
        if self.saving || self.saved == Some(stamp) {
            return Ok(());
        }
        let (record, store, name) = (session.record(), Arc::clone(&self.args.store), name(&self.args));
        let worker = self.args.holder.worker.clone();
        let work = async move {
            let Ok(bytes) = spawn_blocking(move || record.to_bytes()).await else { return false };
            let kept = store.save(&name, Bytes::from(bytes)).await;
            kept.inspect_err(|error| tracing::warn!(%worker, %error, "checkpoint cannot be written")).is_ok()
        };
        let done = move |outcome: Result<bool, Failed>| Msg::Saved(stamp, outcome.unwrap_or(false));
        self.children.run(STORE_DEADLINE, work, done)?;
        self.saving = true;
        Ok(())
    }

    pub(super) fn saved(&mut self, stamp: Stamp, kept: bool) -> Result<(), Full> {
        self.saving = false;
        if kept {
            self.saved = Some(stamp);
        }
        let current = self.session.as_ref().map(Session::stamp);
        if kept && !self.flushes.is_empty() && current != Some(stamp) {
            return self.save();
        }
        self.flushes.drain(..).for_each(|reply| reply.send(kept));
        Ok(())
    }

    pub(super) fn flush(&mut self, reply: Reply<bool>) -> Result<(), Full> {
        let caught_up = self.session.as_ref().is_some_and(Session::is_caught_up);
        let current = self.session.as_ref().map(Session::stamp);
        if !caught_up || self.flushes.len() >= MAILBOX_MAX || (current == self.saved && !self.saving) {
            reply.send(caught_up && current == self.saved);
            return Ok(());
        }
        self.flushes.push(reply);
        self.save()
    }
}

/// Why a checkpoint is of no use.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error(transparent)]
    Record(#[from] engine_events::RecordError),
    #[error(transparent)]
    State(#[from] engine_events::CheckpointError),
}

pub(super) fn resume(args: &EngineFeedArgs, bytes: &[u8]) -> Result<Session, Unusable> {
    let record = Record::from_bytes(bytes)?;
    let (model, holder) = (args.model.clone(), args.holder.clone());
    Ok(Session::resume(model, holder, args.translation.clone(), &record)?)
}
