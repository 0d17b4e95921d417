//! Brings media to workers' directories, through their agents.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use identity::{MediaId, WorkerId};
use membership::card::MediaDir;
use moka::future::Cache;
use ports::Engine;
use ports::engine::{self, Endpoint, Request};

/// Delivers; each file once per worker, however many ask.
#[derive(Debug)]
pub(crate) struct Courier {
    engine: Arc<dyn Engine>,
    deadline: Duration,
    delivered: Cache<Address, ()>,
    /// Directories that did not take a file lately.
    failing: Cache<Arc<str>, ()>,
}

/// A file in a directory: the directory's key is another after its agent was started again.
type Address = (WorkerId, Arc<str>, MediaId);

/// Why a file was not delivered.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Undelivered {
    /// The directory is none that can be used.
    #[error("the card's media directory makes no sense")]
    Card,
    /// It failed a moment ago.
    #[error("the agent failed a moment ago")]
    Failing,
    /// The agent cannot be reached.
    #[error("the agent cannot be reached")]
    Unreachable(#[source] Arc<engine::Error>),
    /// The agent does not take it.
    #[error("the agent answers {0}")]
    Refused(StatusCode),
    /// It took too long.
    #[error("not delivered within {0:?}")]
    Late(Duration),
}

impl Undelivered {
    /// Returns the reason's name in metrics.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Card => "card",
            Self::Failing => "failing",
            Self::Unreachable(_) => "unreachable",
            Self::Refused(StatusCode::INSUFFICIENT_STORAGE) => "full",
            Self::Refused(_) => "refused",
            Self::Late(_) => "late",
        }
    }

    /// Says whether the next file would fare no better.
    const fn lasts(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Late(_))
    }
}

/// How long a delivered file is counted on. Agents keep one for twice as long after it was put, or kept.
const COUNTED_ON: Duration = Duration::from_secs(60);
/// How long nothing is tried with a directory that failed.
const FAILING: Duration = Duration::from_secs(5);
const DELIVERED_MAX: u64 = 100_000;
const ANSWER_BYTES_MAX: usize = 4096;

impl Courier {
    pub(crate) fn new(engine: Arc<dyn Engine>, deadline: Duration) -> Self {
        let delivered = Cache::builder().max_capacity(DELIVERED_MAX).time_to_live(COUNTED_ON).build();
        let failing = Cache::builder().max_capacity(1024).time_to_live(FAILING).build();
        Self { engine, deadline, delivered, failing }
    }

    /// Sees to it that a file is there, and returns its URL.
    ///
    /// # Errors
    /// Hand it over otherwise.
    pub(crate) async fn deliver(
        &self,
        worker: &WorkerId,
        dir: &MediaDir,
        (id, bytes): (&MediaId, &Bytes),
    ) -> Result<Bytes, Undelivered> {
        let key: Arc<str> = Arc::from(dir.key.as_str());
        let delivering = async {
            if self.failing.contains_key(&key) {
                return Err(Undelivered::Failing);
            }
            let bringing = tokio::time::timeout(self.deadline, self.bring(dir, id, bytes));
            let brought = bringing.await.unwrap_or(Err(Undelivered::Late(self.deadline)));
            if brought.as_ref().is_err_and(Undelivered::lasts) {
                self.failing.insert(Arc::clone(&key), ()).await;
            }
            brought
        };
        let address = (worker.clone(), Arc::clone(&key), id.clone());
        let delivered = self.delivered.try_get_with(address, delivering).await;
        delivered.map_err(|undelivered: Arc<_>| (*undelivered).clone())?;
        Ok(url(&dir.path, id))
    }

    /// Asks to keep the file, and sends it if it is not there.
    async fn bring(&self, dir: &MediaDir, id: &MediaId, bytes: &Bytes) -> Result<(), Undelivered> {
        match self.send(dir, (Method::POST, id), Vec::new()).await? {
            StatusCode::NO_CONTENT => return Ok(()),
            StatusCode::NOT_FOUND => {}
            status => return Err(Undelivered::Refused(status)),
        }
        match self.send(dir, (Method::PUT, id), vec![bytes.clone()]).await? {
            StatusCode::CREATED => Ok(()),
            status => Err(Undelivered::Refused(status)),
        }
    }

    async fn send(
        &self,
        dir: &MediaDir,
        (method, id): (Method, &MediaId),
        body: Vec<Bytes>,
    ) -> Result<StatusCode, Undelivered> {
        let endpoint = Endpoint::parse(&dir.endpoint).map_err(|_| Undelivered::Card)?;
        let path: PathAndQuery = format!("/media/{id}").parse().map_err(|_| Undelivered::Card)?;
        let bearer = format!("Bearer {}", dir.key.as_str());
        let bearer = HeaderValue::try_from(bearer).map_err(|_| Undelivered::Card)?;
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]);
        let unreachable = |error| Undelivered::Unreachable(Arc::new(error));
        let request = Request { method, path, headers, body };
        let response = self.engine.forward(&endpoint, request).await.map_err(unreachable)?;
        // Read to its end, so that the connection can be used again.
        drop(Limited::new(response.body, ANSWER_BYTES_MAX).collect().await);
        Ok(response.status)
    }
}

/// Spells a file's URL.
fn url(path: &str, id: &MediaId) -> Bytes {
    let mut url = String::from("file://");
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url.push('/');
    url.push_str(id.as_str());
    Bytes::from(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_spelt_as_urls() {
        let id = MediaId::new("0f");
        assert_eq!(url("/dev/shm/w0", &id), "file:///dev/shm/w0/0f");
        assert_eq!(url("/a b/%c\"ü", &id), "file:///a%20b/%25c%22%C3%BC/0f");
    }
}
