//! A real engine to attach, as `--engine` spells it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// `URL,kv-events=EP[,replay=EP][,bind]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSpec {
    /// Base URL of the engine's HTTP server.
    pub url: String,
    /// ZeroMQ endpoint of rank 0's events; later ranks have the ports after it.
    pub kv_events: String,
    /// ZeroMQ endpoint of rank 0's replay.
    pub replay: Option<String>,
    /// Whether the engine connects, so that this side binds.
    pub bind: bool,
}

/// Why an engine cannot be attached as spelled.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The URL is no base URL.
    #[error("engine {spec:?} does not begin with an http:// or https:// URL")]
    Url {
        /// As given.
        spec: String,
    },
    /// No endpoint for events.
    #[error("engine {spec:?} names no event endpoint: add ,kv-events=tcp://HOST:PORT")]
    NoEvents {
        /// As given.
        spec: String,
    },
    /// A part that means nothing.
    #[error("engine {spec:?} has an unknown part {part:?}: expected kv-events=, replay= or bind")]
    Part {
        /// As given.
        spec: String,
        /// The part.
        part: String,
    },
}

impl FromStr for EngineSpec {
    type Err = Error;

    fn from_str(spec: &str) -> Result<Self, Error> {
        let mut parts = spec.split(',').map(str::trim);
        let url = parts.next().unwrap_or_default().trim_end_matches('/');
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(Error::Url { spec: spec.to_owned() });
        }
        let (mut kv_events, mut replay, mut bind) = (None, None, false);
        for part in parts {
            match part.split_once('=') {
                Some(("kv-events", endpoint)) => kv_events = Some(endpoint.to_owned()),
                Some(("replay", endpoint)) => replay = Some(endpoint.to_owned()),
                None if part == "bind" => bind = true,
                _ => return Err(Error::Part { spec: spec.to_owned(), part: part.to_owned() }),
            }
        }
        let kv_events = kv_events.ok_or_else(|| Error::NoEvents { spec: spec.to_owned() })?;
        Ok(Self { url: url.to_owned(), kv_events, replay, bind })
    }
}

impl fmt::Display for EngineSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},kv-events={}", self.url, self.kv_events)?;
        if let Some(replay) = &self.replay {
            write!(f, ",replay={replay}")?;
        }
        if self.bind { f.write_str(",bind") } else { Ok(()) }
    }
}

impl Serialize for EngineSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EngineSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::{EngineSpec, Error};

    #[test]
    fn a_spec_reads_as_it_is_written() {
        for spec in [
            "http://127.0.0.1:8000,kv-events=tcp://127.0.0.1:5557",
            "http://127.0.0.1:8000,kv-events=tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5657",
            "https://engine,kv-events=tcp://*:5557,replay=tcp://engine:5657,bind",
        ] {
            assert_eq!(spec.parse::<EngineSpec>().unwrap().to_string(), spec);
        }
    }

    #[test]
    fn a_bad_spec_names_what_is_wrong() {
        let error = |spec: &str| spec.parse::<EngineSpec>().unwrap_err();
        assert!(matches!(error("tcp://x"), Error::Url { .. }));
        assert!(matches!(error("http://x"), Error::NoEvents { .. }));
        assert!(matches!(error("http://x,kv-events=tcp://y,foo"), Error::Part { part, .. } if part == "foo"));
    }
}
