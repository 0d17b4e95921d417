//! A NATS micro service (ADR-32): others find it by `$SRV.INFO` and ask it on its subject.

use std::fmt;

use async_nats::service::endpoint::Endpoint;
use async_nats::service::{self, Service, ServiceExt as _};
use bytes::Bytes;
use futures::StreamExt as _;

use crate::NatsBus;

/// What is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Name of the service: letters, digits, `-` and `_`.
    pub name: String,
    /// Its semantic version.
    pub version: String,
    /// What it is for.
    pub description: String,
    /// Where questions go; of several instances one answers each.
    pub subject: String,
}

/// The service cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("cannot offer the service {name}")]
pub struct Error {
    /// Its name.
    pub name: String,
    /// Why.
    #[source]
    pub source: async_nats::Error,
}

/// A running service; dropping it withdraws it.
pub struct Offered {
    endpoint: Endpoint,
    _service: Service,
}

impl fmt::Debug for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offered").finish_non_exhaustive()
    }
}

impl NatsBus {
    /// Offers a service, as soon as NATS can be reached.
    ///
    /// # Errors
    /// The name or version is malformed, or the client has ended.
    pub async fn offer(&self, offer: &Offer) -> Result<Offered, Error> {
        let failed = |source| Error { name: offer.name.clone(), source };
        let builder = self.client().service_builder().description(&offer.description);
        let service = builder.start(&offer.name, &offer.version).await.map_err(failed)?;
        let endpoint = service.endpoint(&offer.subject).await.map_err(failed)?;
        Ok(Offered { endpoint, _service: service })
    }
}

impl Offered {
    /// Answers questions one after the other, until the client ends. An error is a status and what went wrong.
    pub async fn serve(mut self, answer: impl Fn(&[u8]) -> Result<Vec<u8>, (u16, String)>) {
        while let Some(request) = self.endpoint.next().await {
            let response = answer(&request.message.payload).map(Bytes::from);
            let response =
                response.map_err(|(code, status)| service::error::Error { status, code: usize::from(code) });
            if let Err(error) = request.respond(response).await {
                tracing::debug!(%error, "answer was not sent");
            }
        }
    }
}
