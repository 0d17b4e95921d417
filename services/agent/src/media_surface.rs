//! Where frontends put media for the engine: `PUT /media/<id>` with the bytes, `POST /media/<id>` to keep them.
//!
//! Nothing can be read here. A file is finished only if its bytes are those that its id names.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt, Full as FullBody};
use hyper::body::Incoming;
use membership::card::MediaDirKey;
use ports::Clock;
use prompt::MediaHasher;
use subtle::ConstantTimeEq;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use crate::media_dir::{MediaDir, Unfinished, is_id};

/// Serves one agent's media directory.
#[derive(Debug)]
pub(crate) struct MediaSurface {
    dir: Arc<MediaDir>,
    key: [u8; 32],
    bytes_max: u64,
    uploads: Semaphore,
    clock: Arc<dyn Clock>,
}

/// Files written at once; whoever comes on top hands over otherwise.
const UPLOADS_MAX: usize = 16;
/// Longest time a file may take to arrive.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why nothing was put.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is nothing here")]
    Nothing,
    #[error("method not allowed")]
    Method,
    #[error("the key is wrong")]
    Key,
    #[error("content-length is needed")]
    Length,
    #[error("the file is larger than {bytes_max} bytes")]
    TooLarge { bytes_max: u64 },
    #[error("too many files are being written")]
    Busy,
    #[error(transparent)]
    Full(#[from] crate::media_dir::Full),
    #[error("the bytes are not those of the id")]
    Differs,
    #[error("the file did not arrive whole in time")]
    Broken,
    #[error("the file cannot be written: {0}")]
    Disk(#[from] io::Error),
}

impl Refusal {
    const fn status(&self) -> StatusCode {
        match self {
            Self::Nothing => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Key => StatusCode::UNAUTHORIZED,
            Self::Length => StatusCode::LENGTH_REQUIRED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
            Self::Differs => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Broken => StatusCode::REQUEST_TIMEOUT,
            Self::Disk(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl MediaSurface {
    pub(crate) fn new(dir: Arc<MediaDir>, key: &MediaDirKey, bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let key = digest(key.as_str().as_bytes());
        Self { dir, key, bytes_max, uploads: Semaphore::new(UPLOADS_MAX), clock }
    }

    pub(crate) async fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<FullBody<Bytes>>, Infallible> {
        let (parts, body) = request.into_parts();
        let (status, text) = match self.answer(&parts, body).await {
            Ok(status) => (status, String::new()),
            Err(refusal) => {
                if let Refusal::Disk(cause) = &refusal {
                    tracing::warn!(%cause, "a media file cannot be written");
                }
                (refusal.status(), refusal.to_string())
            }
        };
        let mut response = Response::new(FullBody::new(Bytes::from(text)));
        *response.status_mut() = status;
        Ok(response)
    }

    async fn answer(&self, parts: &Parts, body: Incoming) -> Result<StatusCode, Refusal> {
        let id = parts.uri.path().strip_prefix("/media/").filter(|id| is_id(id)).ok_or(Refusal::Nothing)?;
        if !self.opens(&parts.headers) {
            return Err(Refusal::Key);
        }
        match parts.method {
            Method::POST => {
                let kept = self.dir.keep(id, self.clock.now());
                Ok(if kept { StatusCode::NO_CONTENT } else { StatusCode::NOT_FOUND })
            }
            Method::PUT => {
                let arriving = tokio::time::timeout(DEADLINE, self.put(id, body));
                arriving.await.map_err(|_| Refusal::Broken)??;
                Ok(StatusCode::CREATED)
            }
            _ => Err(Refusal::Method),
        }
    }

    async fn put(&self, id: &str, body: Incoming) -> Result<(), Refusal> {
        let bytes = body.size_hint().exact().ok_or(Refusal::Length)?;
        if bytes > self.bytes_max {
            return Err(Refusal::TooLarge { bytes_max: self.bytes_max });
        }
        let _upload = self.uploads.try_acquire().map_err(|_| Refusal::Busy)?;
        let room = self.dir.reserve(id, bytes, self.clock.now())?;
        if write(&room, body).await? != id {
            return Err(Refusal::Differs);
        }
        Ok(room.finish(self.clock.now())?)
    }

    fn opens(&self, headers: &HeaderMap) -> bool {
        let bearer =
            headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        bearer.is_some_and(|key| digest(key).ct_eq(&self.key).into())
    }
}

/// Writes a body as it arrives, and names its bytes.
async fn write(room: &Unfinished, mut body: Incoming) -> Result<String, Refusal> {
    let mut file = tokio::fs::File::from_std(room.create()?);
    let mut hasher = MediaHasher::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::Broken)?.into_data() else { continue };
        hasher.update(&data);
        file.write_all(&data).await?;
    }
    file.flush().await?;
    Ok(hasher.finish().as_str().to_owned())
}

/// Keys are compared by digest, in the same time whatever is presented.
fn digest(key: &[u8]) -> [u8; 32] {
    blake3::derive_key("sightline media directory key v1", key)
}
