//! How workers are handed media that were fetched here.
//!
//! ```text
//! data  the bytes, in the body                                    needs nothing of the engine
//! url   a URL of this frontend's media listener                   the engine fetches, over the network
//! file  a file that the worker's agent wrote into shared memory   the engine opens it; else as data
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use actors::media_resolver::Handed;
use actors::{Bitmaps, Share, bitmaps::Bitmap, dim_cache::Stored};
use bytes::Bytes;
use futures::future::join_all;
use identity::MediaId;
use membership::Card;
use ports::media_source::Room as _;
use prompt::DataUri;

use crate::api_error::ApiError;
use crate::courier::Courier;
use crate::dispatch::Dispatch;
use crate::media_address::MediaAddress;
use crate::metrics::Metrics;
use crate::shared::Shared;

/// Hands media over.
#[derive(Debug)]
pub(crate) struct HandOver {
    pub(crate) way: Way,
    /// Decodes images first, if that is wanted.
    pub(crate) bitmaps: Option<Bitmaps>,
}

/// How it is done.
#[derive(Debug)]
pub(crate) enum Way {
    Data,
    Url(MediaAddress),
    File(Courier),
}

/// An item in the form in which it is handed over.
struct Form {
    /// The id of the handed bytes themselves.
    own: MediaId,
    /// Their name on the media listener.
    name: String,
    stored: Stored,
    kind: &'static str,
}

/// A body for a worker, and its share of the budget for as long as it is held.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) chunks: Vec<Bytes>,
    pub(crate) share: Share,
}

/// What is appended to a media id to name the bitmap decoded from its bytes.
pub(crate) const BITMAP: &str = ".bmp";

impl Shared {
    /// Makes the body for a worker, with its share of the budget for what was not in the client's.
    ///
    /// # Errors
    /// Too much is held already, or it never fits; the pool is overloaded, or a job failed.
    pub(crate) async fn body_for(&self, dispatch: &Dispatch, card: &Card) -> Result<Filled, ApiError> {
        let payload = dispatch.payload.clone();
        let urls = join_all(payload.handed().iter().map(|handed| self.url_for(handed, card))).await;
        let bytes = unspelt(&urls);
        let mut share = dispatch.allowance.tab().share();
        share.grow(u64::try_from(bytes).unwrap_or(u64::MAX))?;
        let chunks = self.reader.pool.run(bytes, move || payload.body(&spell(urls))).await?;
        Ok(Filled { chunks, share })
    }

    async fn url_for(&self, handed: &Handed, card: &Card) -> Url {
        let form = self.hand_over.form(handed, &self.metrics).await;
        let reason = match &self.hand_over.way {
            Way::Data => "",
            Way::Url(address) => {
                self.metrics.media_handed("url", form.kind, "");
                return Url::Spelt(address.url(&form.name, self.clock.wall_ms() / 1000));
            }
            Way::File(courier) => match &card.media_dir {
                None => "no-directory",
                Some(dir) => {
                    match courier.deliver(&card.worker, dir, (&form.own, &form.stored.bytes)).await {
                        Ok(url) => {
                            self.metrics.media_handed("file", form.kind, "");
                            return Url::Spelt(url);
                        }
                        Err(undelivered) => {
                            tracing::debug!(worker = %card.worker, cause = %undelivered, "media go in the body");
                            undelivered.as_str()
                        }
                    }
                }
            },
        };
        self.metrics.media_handed("data", form.kind, reason);
        Url::Data(form.own, form.stored)
    }
}

/// What stands in a body for an item.
enum Url {
    Spelt(Bytes),
    /// A data URI, yet to be made of the bytes that the id names: CPU work, for the pool, all of a body's at once.
    Data(MediaId, Stored),
}

/// Counts the bytes of the texts that are yet to be spelt.
fn unspelt(urls: &[Url]) -> usize {
    let texts = urls.iter().filter_map(|url| match url {
        Url::Spelt(_) => None,
        Url::Data(id, stored) => Some((id, stored.bytes.len().div_ceil(3) * 4)),
    });
    texts.collect::<HashMap<_, _>>().into_values().sum()
}

/// Spells URLs; one image that stands in a body many times is spelt once.
fn spell(urls: Vec<Url>) -> Vec<Bytes> {
    let mut spelt = HashMap::new();
    let spell = |url| match url {
        Url::Spelt(url) => url,
        Url::Data(id, stored) => {
            let spell = || DataUri::spell(&stored.media_type, &stored.bytes);
            spelt.entry(id).or_insert_with(spell).clone()
        }
    };
    urls.into_iter().map(spell).collect()
}

impl HandOver {
    async fn form(&self, handed: &Handed, metrics: &Metrics) -> Form {
        match self.bitmap(handed, metrics).await {
            Some(bitmap) => Form {
                own: bitmap.id.clone(),
                name: format!("{}{BITMAP}", handed.id),
                stored: bitmap.stored.clone(),
                kind: "bitmap",
            },
            None => Form {
                own: handed.id.clone(),
                name: handed.id.to_string(),
                stored: handed.stored.clone(),
                kind: "original",
            },
        }
    }

    /// Decodes an image, if that is wanted and can be done now.
    async fn bitmap(&self, handed: &Handed, metrics: &Metrics) -> Option<Arc<Bitmap>> {
        let reason = match self.bitmaps.as_ref()?.of(&handed.id, &handed.stored).await {
            Ok(Ok(bitmap)) => return Some(bitmap),
            Ok(Err(unfit)) => unfit.as_str(),
            Err(overloaded) => overloaded.as_str(),
        };
        metrics.media_undecoded(reason);
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use actors::{Preprocessor, bitmaps, preprocessor};

    use super::*;

    #[test]
    fn an_image_that_comes_many_times_is_spelt_once() {
        let data = |bytes: &'static [u8]| {
            let stored = Stored { bytes: Bytes::from_static(bytes), media_type: Arc::from("image/png") };
            Url::Data(prompt::media_id(bytes), stored)
        };
        let urls =
            vec![data(b"abc"), Url::Spelt(Bytes::from_static(b"file:///a")), data(b"abd"), data(b"abc")];
        assert_eq!(unspelt(&urls), 8);
        let spelt = spell(urls);
        let expected = ["data:image/png;base64,YWJj", "file:///a", "data:image/png;base64,YWJk"];
        assert_eq!(spelt.get(..3).unwrap(), expected.map(Bytes::from));
        assert_eq!(spelt[0].as_ptr(), spelt[3].as_ptr());
    }

    #[tokio::test]
    async fn a_pool_without_room_hands_over_the_original() {
        let bounds = preprocessor::Config {
            threads: 1,
            queue_max: 1,
            deadline: Duration::from_millis(50),
            ..preprocessor::Config::default()
        };
        let pool = Preprocessor::new(bounds);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let bitmaps = bitmaps::Config { pixels_max: 1 << 20, stored_bytes_max: 1 << 20 };
        let bitmaps = Some(Bitmaps::new(bitmaps, pool.clone()));
        let (hand_over, metrics) = (HandOver { way: Way::Data, bitmaps }, Metrics::new());
        let handed = |bytes: &'static [u8]| Handed {
            index: 0,
            id: prompt::media_id(bytes),
            stored: Stored { bytes: Bytes::from_static(bytes), media_type: Arc::from("image/png") },
        };
        let (waiting, refused) = (handed(b"abc"), handed(b"abd"));
        let forms = async {
            let forms = tokio::join!(hand_over.form(&waiting, &metrics), hand_over.form(&refused, &metrics));
            release.send(()).unwrap();
            forms
        };
        let (_, (waited, full)) = tokio::join!(pool.run(usize::MAX, move || gate.recv()), forms);
        for (form, handed) in [(waited, waiting), (full, refused)] {
            assert_eq!((form.own, form.kind, form.stored), (handed.id, "original", handed.stored));
        }
        let text = metrics.text(&[]);
        for reason in ["full", "timeout"] {
            let line = format!("sightline_media_undecoded_total{{reason=\"{reason}\"}} 1");
            assert!(text.contains(&line), "{line} in {text}");
        }
    }
}
