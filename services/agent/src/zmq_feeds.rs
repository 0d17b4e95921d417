//! Feeds over ZeroMQ.

use actors::Feeds;
use adapter_zmq::{Config, ZmqFeed};
use ports::EventFeed;

use crate::discovery::RankSource;

/// Opens one rank's feed.
#[derive(Debug)]
pub(crate) struct ZmqFeeds(Config);

impl ZmqFeeds {
    pub(crate) fn new(source: &RankSource) -> Self {
        let config = Config::new(source.events.clone(), source.replay.clone());
        Self(Config { topic: source.topic.clone(), ..config })
    }
}

impl Feeds for ZmqFeeds {
    fn open(&self) -> Box<dyn EventFeed> {
        Box::new(ZmqFeed::new(self.0.clone()))
    }
}
