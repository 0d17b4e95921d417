//! Serves the model's files to frontends without a model directory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use identity::WorkerId;
use ports::bus::{Message, Received};
use ports::{Bus, Clock};
use prompt::ModelFiles;
use tracing::Instrument as _;
use wire::files::{CHUNK_BYTES_MAX, Digest, File, Request, Response};

use crate::wiring::Ports;

/// Questions that wait at most; further ones are asked again.
const QUESTIONS_MAX: usize = 256;
/// Pause before subscribing again.
const PAUSE: Duration = Duration::from_millis(500);
/// What a message needs beside the chunk.
const OVERHEAD_BYTES: usize = 1024;

/// A model's files, by digest, and where they are asked for.
#[derive(Debug)]
pub(crate) struct FileDesk {
    subject: String,
    bus: Arc<dyn Bus>,
    clock: Arc<dyn Clock>,
    files: Vec<(File, Bytes)>,
}

impl FileDesk {
    pub(crate) fn new(files: Option<&ModelFiles>, namespace: &str, worker: &WorkerId, ports: &Ports) -> Self {
        let file = |(name, bytes): (&str, &[u8])| {
            let digest = *blake3::hash(bytes).as_bytes();
            let file = File { name: name.to_owned(), bytes: bytes.len() as u64, digest };
            (file, Bytes::copy_from_slice(bytes))
        };
        Self {
            subject: wire::subject::files(namespace, worker),
            bus: Arc::clone(&ports.bus),
            clock: Arc::clone(&ports.clock),
            files: files.map(|files| files.named().map(file).collect()).unwrap_or_default(),
        }
    }

    /// Answers one question after the other; never ends by itself.
    pub(crate) async fn serve(self) {
        loop {
            if let Ok(mut questions) = self.bus.subscribe(&self.subject, QUESTIONS_MAX).await {
                while let Some(received) = questions.next().await {
                    let Received::Message(message) = received else { continue };
                    let span = tracing::debug_span!("files");
                    self.bus.join_trace(&span, &message);
                    let Some(reply) = message.reply else { continue };
                    self.answer(reply, &message.payload).instrument(span).await;
                }
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    async fn answer(&self, reply: String, question: &[u8]) {
        let Ok(question) = Request::decode(question) else { return };
        let response = match question {
            Request::List => {
                Response::Listing { files: self.files.iter().map(|(file, _)| file.clone()).collect() }
            }
            Request::Read { digest, offset } => self.chunk(&digest, offset),
        };
        let Ok(payload) = response.encode() else { return };
        let message = Message { subject: reply, payload, ..Message::default() };
        if let Err(error) = self.bus.publish(message).await {
            tracing::debug!(%error, "model file was not sent");
        }
    }

    fn chunk(&self, digest: &Digest, offset: u64) -> Response {
        let room = self.bus.payload_bytes_max().saturating_sub(OVERHEAD_BYTES).min(CHUNK_BYTES_MAX);
        let found = self.files.iter().find(|(file, _)| file.digest == *digest);
        let rest = found.and_then(|(_, bytes)| bytes.get(usize::try_from(offset).ok()?..));
        rest.map_or(Response::NoFile, |rest| Response::Chunk {
            bytes: rest.get(..room).unwrap_or(rest).to_vec(),
        })
    }
}
