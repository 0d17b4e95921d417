//! What a frontend does with media: caches, who shares what they learn, and who learns engines' names.

use std::sync::Arc;
use std::time::Duration;

use actor_kit::Node;
use actors::{
    DimCache, FactBoardArgs, FactBoardHandle, Gossip, HeaderCache, HostPattern, MediaPolicy, MediaResolver,
    NameLearnerArgs, NameLearnerHandle, Preprocessor, Treatment, UrlPattern, dim_cache, header_cache,
    media_resolver,
};
use anyhow::Context;
use ports::media_source::Limits;

use crate::config::{Config, MediaConfig, MediaMode};
use crate::wiring::Ports;

/// The parts.
#[derive(Debug)]
pub(crate) struct MediaParts {
    pub(crate) resolver: MediaResolver,
    pub(crate) names: NameLearnerHandle,
    pub(crate) facts: FactBoardHandle,
}

impl MediaParts {
    /// Makes the caches and starts the actors.
    ///
    /// # Errors
    /// The policy makes no sense, or an actor does not start.
    pub(crate) async fn start(
        config: &Config,
        ports: &Ports,
        node: &Node,
        (frontend, pool): (&str, Preprocessor),
    ) -> anyhow::Result<Self> {
        let media = &config.media;
        let policy = policy(media)?;
        let gossip = Gossip::new(&config.secret);
        let limits = Limits {
            bytes_max: media.item_bytes_max,
            deadline: Duration::from_millis(media.fetch_ms),
            redirects_max: media.redirects_max,
        };
        let cache = dim_cache::Config {
            stored_bytes_max: media.stored_bytes_max,
            limits,
            gossip: gossip.clone(),
            ..dim_cache::Config::default()
        };
        let headers =
            header_cache::Config { limits, gossip: gossip.clone(), ..header_cache::Config::default() };
        let (source, clock) = (&ports.media, &ports.clock);
        let cache = DimCache::new(cache, Arc::clone(source), Arc::clone(clock), pool);
        let headers = HeaderCache::new(headers, Arc::clone(source), Arc::clone(clock));
        let names = NameLearnerArgs {
            frontend: frontend.to_owned(),
            clock: Arc::clone(clock),
            headers: headers.clone(),
        };
        let facts = FactBoardArgs {
            namespace: config.namespace.clone(),
            frontend: frontend.to_owned(),
            bus: Arc::clone(&ports.bus),
            clock: Arc::clone(clock),
            gossip,
            cache: cache.clone(),
            headers: headers.clone(),
        };
        let bounds = media_resolver::Config {
            items_max: media.items_max,
            item_bytes_max: media.item_bytes_max,
            budget: Duration::from_millis(media.budget_ms),
            pixels_max: media.pixels_max,
        };
        Ok(Self {
            resolver: MediaResolver::new(bounds, cache).with_policy(policy, headers),
            names: NameLearnerHandle::start(node, names).await?,
            facts: FactBoardHandle::start(node, facts).await?,
        })
    }
}

fn policy(config: &MediaConfig) -> anyhow::Result<MediaPolicy> {
    let otherwise = match config.mode {
        MediaMode::Fetch => Treatment::Fetch,
        MediaMode::Passthrough => Treatment::Probe,
    };
    let hosts = config.hosts.iter().map(|(pattern, treatment)| {
        let pattern: HostPattern = pattern.parse().context("media.hosts")?;
        let treatment: Treatment = treatment.parse().context("media.hosts")?;
        anyhow::Ok((pattern, treatment))
    });
    let immutable = config.immutable_urls.iter();
    let immutable = immutable.map(|pattern| pattern.parse::<UrlPattern>().context("media.immutable_urls"));
    let (hosts, immutable) = (hosts.collect::<Result<_, _>>()?, immutable.collect::<Result<_, _>>()?);
    Ok(MediaPolicy::new(otherwise, hosts, immutable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_and_mistakes_named() {
        let of = |hosts: &[(&str, &str)], urls: &[&str]| {
            let hosts = hosts.iter().map(|(host, how)| ((*host).to_owned(), (*how).to_owned()));
            let immutable_urls = urls.iter().map(|url| (*url).to_owned()).collect();
            policy(&MediaConfig { hosts: hosts.collect(), immutable_urls, ..MediaConfig::default() })
        };
        assert!(of(&[], &[]).unwrap().fetches_all());
        let mixed =
            of(&[("*.a.example", "probe"), ("b.example", "never")], &["https://c.example/*"]).unwrap();
        assert_eq!(mixed.treatment("http://x.a.example/"), Treatment::Probe);
        assert_eq!(mixed.treatment("http://b.example/"), Treatment::Never);
        let wrong = |error: anyhow::Result<MediaPolicy>| format!("{:#}", error.unwrap_err());
        assert!(wrong(of(&[("a.example", "skip")], &[])).contains("media.hosts: \"skip\" is no treatment"));
        assert!(wrong(of(&[("a b", "never")], &[])).contains("media.hosts: \"a b\" is no host pattern"));
        assert!(wrong(of(&[], &["c.example"])).contains("media.immutable_urls: \"c.example\""));
    }
}
