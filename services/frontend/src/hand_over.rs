//! How workers are handed media that were fetched here.

use actors::media_resolver::Handed;
use actors::{Preprocessor, preprocessor};
use bytes::Bytes;
use prompt::DataUri;

use crate::payload::Payload;

/// Hands media over; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct HandOver {
    pub(crate) pool: Preprocessor,
}

impl HandOver {
    /// Makes the body for a worker.
    ///
    /// # Errors
    /// The pool is overloaded, or a job failed.
    pub(crate) async fn body(&self, payload: &Payload) -> Result<Vec<Bytes>, preprocessor::Error> {
        let handed = payload.handed();
        if handed.is_empty() {
            return Ok(payload.body(&[]));
        }
        let bytes = handed.iter().map(|item| item.stored.bytes.len()).sum();
        let handed = handed.to_vec();
        let urls: Vec<Bytes> = self.pool.run(bytes, move || handed.iter().map(data_uri).collect()).await?;
        Ok(payload.body(&urls))
    }
}

fn data_uri(handed: &Handed) -> Bytes {
    DataUri::spell(&handed.stored.media_type, &handed.stored.bytes)
}
