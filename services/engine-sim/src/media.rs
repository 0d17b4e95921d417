//! Images of a request: fetched or decoded from base64, identified, sized from their header. No pixel is decoded.

mod local_file;
mod native_id;
mod processor_cache;
mod receipt;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use media_geometry::ImageSize;
use media_probe::{Format, Probe, probe_whole};
use parking_lot::Mutex;
use prompt::{MediaFault, MediaKind, MediaPart, MediaSource};

use self::native_id::native_id;
use self::processor_cache::ProcessorCache;
pub(crate) use self::receipt::Receipt;
use self::receipt::Receipts;
use crate::api::ApiError;

/// What bounds the loading of media.
#[derive(Clone, Debug)]
pub(crate) struct MediaConfig {
    /// The model's path, part of native identities.
    pub(crate) model_path: String,
    /// Items in one request.
    pub(crate) items_max: usize,
    /// Size of one item.
    pub(crate) bytes_max: u64,
    /// Time for one fetch.
    pub(crate) fetch_timeout: Duration,
    /// Images remembered.
    pub(crate) cached_items_max: usize,
    /// Directory below which files may be read.
    pub(crate) local_path: Option<PathBuf>,
    /// Hosts that may be asked; none allows all.
    pub(crate) domains: Vec<String>,
    /// Items received that are remembered.
    pub(crate) recorded_max: usize,
}

/// An image as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The request's `uuid`, else vLLM's own hash.
    pub(crate) identity: Arc<str>,
    /// Size after EXIF orientation: of a known identity that of the image first seen under it.
    pub(crate) size: ImageSize,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct MediaCounts {
    /// Fetches begun.
    pub(crate) fetches: AtomicU64,
    /// Bytes that they brought.
    pub(crate) fetched_bytes: AtomicU64,
    /// Fetches that brought no image.
    pub(crate) fetch_failures: AtomicU64,
}

/// Loads images, every time anew, as vLLM does: only what comes after the bytes is remembered.
#[derive(Debug)]
pub(crate) struct MediaLoader {
    config: MediaConfig,
    client: reqwest::Client,
    cache: Mutex<ProcessorCache>,
    receipts: Mutex<Receipts>,
    pub(crate) counts: MediaCounts,
}

impl MediaLoader {
    /// Creates a loader that has seen nothing.
    ///
    /// # Errors
    /// Fails if the HTTP client cannot be set up.
    pub(crate) fn new(config: MediaConfig) -> Result<Self, reqwest::Error> {
        let client = client(config.fetch_timeout)?;
        let cache = Mutex::new(ProcessorCache::new(config.cached_items_max));
        let receipts = Mutex::new(Receipts::new(config.recorded_max));
        Ok(Self { config, client, cache, receipts, counts: MediaCounts::default() })
    }

    /// Loads the images of one request, in order; of several faults the first one is told.
    pub(crate) async fn load(&self, parts: &[MediaPart]) -> Result<Vec<Image>, ApiError> {
        if parts.len() > self.config.items_max {
            let message =
                format!("At most {} image(s) may be provided in one prompt.", self.config.items_max);
            return Err(ApiError::invalid(&message, "image", None));
        }
        let files = join_all(parts.iter().map(|part| self.file(part))).await;
        let files = files.into_iter().collect::<Result<Vec<_>, _>>()?;
        parts
            .iter()
            .zip(files)
            .enumerate()
            .map(|(index, (part, file))| self.image(index, part, file.as_deref()))
            .collect()
    }

    /// Forgets which identities were seen.
    pub(crate) fn reset(&self) {
        self.cache.lock().clear();
    }

    /// Returns look-ups by identity, and how many of them succeeded.
    pub(crate) fn cache_counts(&self) -> (u64, u64) {
        let cache = self.cache.lock();
        (cache.queries, cache.hits)
    }

    /// Returns what was received, the oldest first.
    pub(crate) fn receipts(&self) -> Vec<Receipt> {
        self.receipts.lock().all()
    }

    async fn file(&self, part: &MediaPart) -> Result<Option<Vec<u8>>, ApiError> {
        if part.kind != MediaKind::Image {
            return Err(ApiError::bad(format!(
                "At most 0 {}(s) may be provided in one prompt.",
                part.kind.as_str()
            )));
        }
        match &part.source {
            MediaSource::Data(uri) => uri.decode(self.config.bytes_max).map(Some).map_err(fault),
            MediaSource::Url(url) => {
                let file = self.fetch(url).await;
                if file.is_err() {
                    self.counts.fetch_failures.fetch_add(1, Ordering::Relaxed);
                }
                file.map(Some)
            }
            MediaSource::Local(url) => {
                local_file::read(url, self.config.local_path.as_deref(), self.config.bytes_max)
                    .await
                    .map(Some)
            }
            MediaSource::Absent => Ok(None),
            MediaSource::Opaque => Err(ApiError::bad("this form of media is not supported")),
        }
    }

    async fn fetch(&self, url: &str) -> Result<Vec<u8>, ApiError> {
        self.check_domain(url)?;
        self.counts.fetches.fetch_add(1, Ordering::Relaxed);
        let broken = |error: reqwest::Error| ApiError::internal(format!("{error}"));
        let mut response = self.client.get(url).send().await.map_err(broken)?;
        let status = response.status();
        if status.is_client_error() {
            return Err(ApiError::unfetched(status.as_u16(), url));
        }
        if !status.is_success() {
            return Err(ApiError::internal(format!("{}, url='{url}'", status.as_u16())));
        }
        let mut file = Vec::new();
        while let Some(bytes) = response.chunk().await.map_err(broken)? {
            if file.len() as u64 + bytes.len() as u64 > self.config.bytes_max {
                return Err(ApiError::bad(format!("media at {url} exceeds {} bytes", self.config.bytes_max)));
            }
            file.extend_from_slice(&bytes);
        }
        self.counts.fetched_bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
        Ok(file)
    }

    /// Refuses hosts that are not allowed, in vLLM's words.
    fn check_domain(&self, url: &str) -> Result<(), ApiError> {
        let domains = &self.config.domains;
        let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
        let host = host.unwrap_or_default();
        if domains.is_empty() || domains.contains(&host) {
            return Ok(());
        }
        Err(ApiError::bad(format!(
            "The URL must be from one of the allowed domains: {domains:?}. Input URL domain: {host}"
        )))
    }

    fn image(&self, index: usize, part: &MediaPart, file: Option<&[u8]>) -> Result<Image, ApiError> {
        let size = file.map(image_size).transpose()?;
        let uuid = part.client_uuid.as_deref();
        let identity = match (uuid, file) {
            (Some(uuid), _) => Arc::<str>::from(uuid),
            (None, Some(file)) => native_id(file, &self.config.model_path).into(),
            (None, None) => return Err(missing(index)),
        };
        self.receipts.lock().add(part, &identity, file);
        let mut cache = self.cache.lock();
        if let Some((identity, size)) = cache.get(&identity) {
            return Ok(Image { identity, size });
        }
        let size = size.ok_or_else(|| missing(index))?;
        cache.insert(&identity, size);
        Ok(Image { identity, size })
    }
}

/// Makes the client for fetches. Without certificates on the machine it is one that trusts no `https:` server.
fn client(timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    // Fails if another part of the process has chosen already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let builder = || reqwest::Client::builder().no_proxy().timeout(timeout);
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

fn missing(index: usize) -> ApiError {
    ApiError::bad(format!("Cache miss for image at index {index} but data is not provided."))
}

fn image_size(file: &[u8]) -> Result<ImageSize, ApiError> {
    match probe_whole(file) {
        Probe::Sized { format: Format::Heic, .. } | Probe::Unknown => {
            Err(ApiError::bad("Failed to load image: cannot identify image file"))
        }
        Probe::Sized { width, height, .. } | Probe::Tentative { width, height, .. } => {
            Ok(ImageSize { width, height })
        }
        Probe::NeedMore { .. } => Err(ApiError::bad("Failed to load image: Truncated File Read")),
        Probe::Malformed(malformed) => Err(ApiError::bad(format!("Failed to load image: {malformed}"))),
    }
}

/// Translates what is wrong with a media part into vLLM's words.
pub(crate) fn fault(fault: MediaFault) -> ApiError {
    match fault {
        MediaFault::Base64 { .. } => ApiError::bad("Non-base64 digit found"),
        MediaFault::NotBase64 => ApiError::not_implemented("Only base64 data URLs are supported for now."),
        MediaFault::Scheme | MediaFault::NoComma => {
            ApiError::bad("The URL must be either a HTTP, data or file URL.")
        }
        MediaFault::Empty => ApiError::bad("Failed to load image: cannot identify image file"),
        MediaFault::TooLarge { .. } | MediaFault::Nothing => ApiError::bad(fault.to_string()),
    }
}

#[cfg(test)]
mod tests;
