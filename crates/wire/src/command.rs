//! Operators' commands to a worker's agent.
//!
//! ```text
//! Drain | Resume → Done{draining}
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};

/// A command, sent on the worker's command subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take nothing new until told otherwise; what is in flight finishes.
    Drain,
    /// Take requests again.
    Resume,
}

/// The agent's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It holds, and outlasts the agent where that keeps state.
    Done {
        /// Whether the worker is being drained now.
        draining: bool,
    },
    /// It could not be kept: a restart of the agent would forget it.
    NotKept,
}

#[derive(Serialize, Deserialize)]
enum CommandForm {
    Drain,
    Resume,
}

#[derive(Serialize, Deserialize)]
enum AnswerForm {
    Done { draining: bool },
    NotKept,
}

impl Form for CommandForm {
    type Previous = Self;
}

impl Form for AnswerForm {
    type Previous = Self;
}

impl Command {
    /// Encodes the command.
    ///
    /// # Errors
    /// None occurs: commands are small.
    pub fn encode(self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Drain => CommandForm::Drain,
            Self::Resume => CommandForm::Resume,
        })
    }

    /// Decodes a command.
    ///
    /// # Errors
    /// The agent does not answer; the operator is told so.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            CommandForm::Drain => Self::Drain,
            CommandForm::Resume => Self::Resume,
        })
    }
}

impl Answer {
    /// Encodes the answer.
    ///
    /// # Errors
    /// None occurs: answers are small.
    pub fn encode(self) -> Result<Bytes, Error> {
        codec::encode(&match self {
            Self::Done { draining } => AnswerForm::Done { draining },
            Self::NotKept => AnswerForm::NotKept,
        })
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// Counts as no answer.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        Ok(match codec::decode(message)? {
            AnswerForm::Done { draining } => Self::Done { draining },
            AnswerForm::NotKept => Self::NotKept,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers_survive() {
        for command in [Command::Drain, Command::Resume] {
            assert_eq!(Command::decode(&command.encode().unwrap()).unwrap(), command);
        }
        for answer in [Answer::Done { draining: true }, Answer::Done { draining: false }, Answer::NotKept] {
            assert_eq!(Answer::decode(&answer.encode().unwrap()).unwrap(), answer);
        }
        assert!(Command::decode(b"").is_err());
    }
}
