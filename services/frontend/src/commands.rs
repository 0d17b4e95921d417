//! Operators' commands to a worker's agent, by way of the bus.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode, header};
use identity::WorkerId;
use percent_encoding::percent_decode_str;
use ports::Bus;
use ports::bus::Message;
use serde_json::{Value, json};
use tracing::Instrument as _;
use wire::command::{Answer, Command};

use crate::api_error::ApiError;
use crate::shared::Shared;

/// How long an agent may take for one answer.
const DEADLINE: Duration = Duration::from_secs(2);
/// Attempts for it: the bus may drop any message, and a command twice is as good as once.
const ATTEMPTS: u32 = 3;

/// The way to agents.
#[derive(Clone, Debug)]
pub(crate) struct Commands {
    pub(crate) namespace: String,
    pub(crate) bus: Arc<dyn Bus>,
}

/// Refuses what a page in an operator's browser may have sent: pages of other origins can post, and name theirs then.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), ApiError> {
    if headers.contains_key(header::ORIGIN) {
        let message = "commands are not taken from web pages";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "origin_refused", message));
    }
    Ok(())
}

impl Shared {
    /// Has a worker drained, or take requests again; 404 for one that is not known.
    pub(crate) async fn command(&self, name: &str, command: Command) -> Result<Value, ApiError> {
        let name = percent_decode_str(name).decode_utf8_lossy();
        let worker = WorkerId::new(&name);
        if self.models.directory().fleet().worker(&worker).is_none() {
            return Err(ApiError::not_found("worker_not_found", format!("there is no worker `{name}`")));
        }
        let span = tracing::debug_span!("command", %worker);
        match self.commands.send(&worker, command).instrument(span).await? {
            Answer::Done { draining } => {
                tracing::info!(%worker, draining, "worker's agent was told");
                Ok(
                    json!({"worker": worker.as_str(), "draining": draining, "active_requests": self.active_at(&worker)}),
                )
            }
            Answer::NotKept => {
                let message = format!("the agent of worker `{name}` cannot keep its state");
                Err(ApiError::unavailable("state_not_kept", message))
            }
        }
    }
}

impl Commands {
    async fn send(&self, worker: &WorkerId, command: Command) -> Result<Answer, ApiError> {
        let unreachable = |cause: String| {
            let message = format!("the agent of worker `{worker}` does not answer");
            ApiError::unavailable("agent_unreachable", message).cause(cause)
        };
        let payload = command.encode().map_err(|error| unreachable(error.to_string()))?;
        let subject = wire::subject::command(&self.namespace, worker);
        let mut attempt = 1;
        loop {
            let message =
                Message { subject: subject.clone(), payload: payload.clone(), ..Message::default() };
            match self.bus.request(message, DEADLINE).await {
                Ok(answer) => {
                    return Answer::decode(&answer.payload).map_err(|error| unreachable(error.to_string()));
                }
                Err(error) if attempt >= ATTEMPTS => return Err(unreachable(error.to_string())),
                Err(_) => attempt += 1,
            }
        }
    }
}
