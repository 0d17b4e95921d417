//! Notices: what a frontend's dispatches will bring to a holder, so that others do not have it computed again.

use std::borrow::Cow;

use bytes::Bytes;
use identity::{BlockKey, Holder, MediaKey, ModelName, Rank, WorkerId};
use serde::{Deserialize, Serialize};

use crate::codec::{self, Error, Form};
use crate::form::Keys;

/// Some notices of one frontend, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notices {
    /// The frontend's name, unique in the namespace.
    pub frontend: String,
    /// The notices.
    pub notices: Vec<Notice>,
}

/// News of one dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The model.
    pub model: ModelName,
    /// Names the dispatch; unique in the life of the frontend's scheduler, and with high probability beyond.
    pub dispatch: u64,
    /// What happened to it.
    pub news: News,
}

/// What happened to a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It went to a holder.
    Begun {
        /// The holder.
        holder: Holder,
        /// Tokens per block.
        block_size: u32,
        /// Blocks that the holder had, or was to get by earlier dispatches.
        known: u32,
        /// The prompt's chain from its beginning, perhaps cut short.
        keys: Vec<BlockKey>,
        /// Media that are new to the holder.
        media: Vec<MediaKey>,
    },
    /// Its prompt is computed.
    Computed,
    /// Its blocks were seen at the holder.
    Confirmed,
    /// It failed before its prompt was computed.
    Failed,
}

#[derive(Serialize, Deserialize)]
struct NoticesForm<'a> {
    frontend: Cow<'a, str>,
    notices: Vec<NoticeForm<'a>>,
}

#[derive(Serialize, Deserialize)]
struct NoticeForm<'a> {
    model: Cow<'a, str>,
    dispatch: u64,
    news: NewsForm<'a>,
}

#[derive(Serialize, Deserialize)]
enum NewsForm<'a> {
    Begun { worker: Cow<'a, str>, rank: u16, block_size: u32, known: u32, keys: Keys<'a>, media: Vec<u64> },
    Computed,
    Confirmed,
    Failed,
}

impl Form for NoticesForm<'_> {
    type Previous = Self;
}

impl Notices {
    /// Encodes the notices.
    ///
    /// # Errors
    /// `TooLarge` or `Encode` past 1 MiB: the sender sends fewer at a time.
    pub fn encode(&self) -> Result<Bytes, Error> {
        let notices = self.notices.iter().map(|notice| NoticeForm {
            model: Cow::Borrowed(notice.model.as_str()),
            dispatch: notice.dispatch,
            news: NewsForm::from(&notice.news),
        });
        codec::encode(&NoticesForm { frontend: Cow::Borrowed(&self.frontend), notices: notices.collect() })
    }

    /// Decodes notices.
    ///
    /// # Errors
    /// The message is dropped: what it told of runs out, or shows in deltas.
    pub fn decode(message: &[u8]) -> Result<Self, Error> {
        let form: NoticesForm<'_> = codec::decode(message)?;
        let notices = form.notices.into_iter().map(|notice| {
            let model = ModelName::new(&notice.model);
            Ok(Notice { model, dispatch: notice.dispatch, news: notice.news.check()? })
        });
        Ok(Self { frontend: form.frontend.into_owned(), notices: notices.collect::<Result<_, Error>>()? })
    }
}

impl<'a> From<&'a News> for NewsForm<'a> {
    fn from(news: &'a News) -> Self {
        match news {
            News::Begun { holder, block_size, known, keys, media } => Self::Begun {
                worker: Cow::Borrowed(holder.worker.as_str()),
                rank: holder.rank.0,
                block_size: *block_size,
                known: *known,
                keys: Keys(Cow::Borrowed(keys)),
                media: media.iter().map(|media| media.get()).collect(),
            },
            News::Computed => Self::Computed,
            News::Confirmed => Self::Confirmed,
            News::Failed => Self::Failed,
        }
    }
}

impl NewsForm<'_> {
    fn check(self) -> Result<News, Error> {
        Ok(match self {
            Self::Begun { block_size: 0, .. } => return Err(Error::Invalid { field: "block size" }),
            Self::Begun { worker, rank, block_size, known, keys, media } => News::Begun {
                holder: Holder { worker: WorkerId::new(&worker), rank: Rank(rank) },
                block_size,
                known,
                keys: keys.0.into_owned(),
                media: media.into_iter().map(MediaKey::new).collect(),
            },
            Self::Computed => News::Computed,
            Self::Confirmed => News::Confirmed,
            Self::Failed => News::Failed,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn news() -> impl Strategy<Value = News> {
        let begun = (".{0,9}", any::<u16>(), 1_u32..99, any::<u32>(), any::<Vec<u64>>(), any::<Vec<u64>>());
        let begun = begun.prop_map(|(worker, rank, block_size, known, keys, media)| News::Begun {
            holder: Holder { worker: WorkerId::new(&worker), rank: Rank(rank) },
            block_size,
            known,
            keys: keys.into_iter().map(BlockKey::new).collect(),
            media: media.into_iter().map(MediaKey::new).collect(),
        });
        prop_oneof![begun, Just(News::Computed), Just(News::Confirmed), Just(News::Failed)]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn notices_survive(frontend in ".{0,9}", model in ".{0,9}", news in prop::collection::vec((any::<u64>(), news()), 0..9)) {
            let notice = |(dispatch, news)| Notice { model: ModelName::new(&model), dispatch, news };
            let notices = Notices { frontend, notices: news.into_iter().map(notice).collect() };
            prop_assert_eq!(Notices::decode(&notices.encode().unwrap()).unwrap(), notices);
        }

        #[test]
        fn noise_is_refused_without_panic(noise in any::<Vec<u8>>()) {
            drop(Notices::decode(&noise));
        }
    }
}
