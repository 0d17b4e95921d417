//! `Bitmaps`: images decoded for engines, each once.
//!
//! *Parent*: whoever makes it; it is a cache without a mailbox. *Asks*: the pool, for decoding. *Bound*: pixels per image,
//! bytes in all; of several that ask at once for one image, one decodes. *When it dies*: it cannot.

use std::sync::Arc;

use bytes::Bytes;
use identity::MediaId;
use media_decode::Unfit;
use moka::future::Cache;
use moka::policy::EvictionPolicy;

use crate::dim_cache::Stored;
use crate::preprocessor::{self, Preprocessor};

/// Bounds of the cache.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Largest image decoded, in pixels; a bitmap has three bytes a pixel.
    pub pixels_max: u64,
    /// Bitmaps kept, in bytes.
    pub stored_bytes_max: u64,
}

/// A decoded image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// The id of the bitmap's own bytes: engines are told that of the file it came from.
    pub id: MediaId,
    /// The bitmap, as a file.
    pub stored: Stored,
}

/// What became of an image; unfit ones are handed over as they are.
pub type Decoded = Result<Arc<Bitmap>, Unfit>;

/// Decodes images; cheap to clone.
#[derive(Clone, Debug)]
pub struct Bitmaps {
    config: Config,
    cache: Cache<MediaId, Decoded>,
    pool: Preprocessor,
}

/// What an entry costs besides its bitmap, in bytes; also where there is none.
const ENTRY_BYTES: usize = 256;

impl Bitmaps {
    /// Makes an empty cache.
    #[must_use]
    pub fn new(config: Config, pool: Preprocessor) -> Self {
        let weight = |_: &MediaId, decoded: &Decoded| {
            let bytes = decoded.as_ref().map_or(0, |bitmap| bitmap.stored.bytes.len());
            u32::try_from(bytes + ENTRY_BYTES).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder()
            .max_capacity(config.stored_bytes_max)
            .weigher(weight)
            .eviction_policy(EvictionPolicy::lru())
            .build();
        Self { config, cache, pool }
    }

    /// Decodes the image that an id names.
    ///
    /// # Errors
    /// The pool is overloaded.
    pub async fn of(&self, id: &MediaId, stored: &Stored) -> Result<Decoded, preprocessor::Error> {
        let decode = async {
            let (file, pixels_max) = (stored.bytes.clone(), self.config.pixels_max);
            let decoded = self.pool.run(usize::MAX, move || {
                let bitmap = Bytes::from(media_decode::to_bitmap(&file, pixels_max)?);
                Ok::<_, Unfit>((prompt::media_id(&bitmap), bitmap))
            });
            let decoded = match decoded.await {
                Err(preprocessor::Error::Panicked) => Err(Unfit::Panicked),
                decoded => decoded?,
            };
            Ok(match decoded {
                Ok((id, bytes)) => {
                    Ok(Arc::new(Bitmap { id, stored: Stored { bytes, media_type: Arc::from("image/bmp") } }))
                }
                Err(Unfit::Panicked) => {
                    tracing::error!(media = %id, "decoder panicked");
                    Err(Unfit::Panicked)
                }
                Err(why) => {
                    tracing::debug!(%why, "image is handed over as it is");
                    Err(why)
                }
            })
        };
        self.cache
            .try_get_with_by_ref(id, decode)
            .await
            .map_err(|error: Arc<preprocessor::Error>| (*error).clone())
    }

    /// Returns the bytes kept; approximate.
    #[must_use]
    pub fn stored_bytes(&self) -> u64 {
        self.cache.weighted_size()
    }
}
