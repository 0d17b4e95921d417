//! What an engine's metrics say, read from the Prometheus text format.

use std::collections::BTreeMap;

use identity::Rank;

/// What an engine says of itself; absent where it doesn't.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStatus {
    /// When the process started (`process_start_time_seconds`), in milliseconds since the Unix epoch.
    pub started_ms: Option<u64>,
    /// Tokens per KV block.
    pub block_size: Option<u32>,
    /// KV blocks per rank.
    pub kv_blocks: Option<u64>,
    /// One per data-parallel rank, ascending; empty if the engine labels none.
    pub ranks: Vec<RankStatus>,
}

/// What an engine says of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankStatus {
    /// The rank.
    pub rank: Rank,
    /// Requests being executed.
    pub running: u32,
    /// Requests that wait for a slot.
    pub waiting: u32,
    /// Share of the KV cache in use, 0 to 1.
    pub kv_usage: f64,
    /// Prompt tokens looked up in the prefix cache since start.
    pub prefix_queries: u64,
    /// Prompt tokens found there.
    pub prefix_hits: u64,
    /// Requests that had to be preempted since start.
    pub preemptions: u64,
}

/// One sample line.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl EngineStatus {
    /// Reads the Prometheus text format; unknown metrics and malformed lines are skipped.
    ///
    /// Metric names are those of vLLM 0.10 to 0.33 (`gpu_cache_usage_perc` is the older name).
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut status = Self::default();
        let mut ranks: BTreeMap<Rank, RankStatus> = BTreeMap::new();
        for sample in text.lines().filter_map(sample) {
            match sample.name {
                "process_start_time_seconds" => status.started_ms = Some(whole(sample.value * 1000.0)),
                "vllm:cache_config_info" => {
                    status.block_size = number(sample.labels, "block_size");
                    status.kv_blocks = number(sample.labels, "num_gpu_blocks");
                }
                name => {
                    let Some(set) = name.strip_prefix("vllm:").and_then(setter) else { continue };
                    let rank = number(sample.labels, "engine").map_or(Rank(0), Rank);
                    set(
                        ranks.entry(rank).or_insert_with(|| RankStatus { rank, ..RankStatus::default() }),
                        sample.value,
                    );
                }
            }
        }
        status.ranks = ranks.into_values().collect();
        status
    }

    /// Finds a rank's part.
    #[must_use]
    pub fn rank(&self, rank: Rank) -> Option<&RankStatus> {
        self.ranks.iter().find(|it| it.rank == rank)
    }
}

type Setter = fn(&mut RankStatus, f64);

/// Chooses the field that a metric fills. Samples add up, since some are split by further labels.
fn setter(name: &str) -> Option<Setter> {
    let set: Setter = match name {
        "num_requests_running" => |rank, value| rank.running = rank.running.saturating_add(narrow(value)),
        "num_requests_waiting" => |rank, value| rank.waiting = rank.waiting.saturating_add(narrow(value)),
        "kv_cache_usage_perc" | "gpu_cache_usage_perc" => |rank, value| rank.kv_usage = value.clamp(0.0, 1.0),
        "prefix_cache_queries_total" => |rank, value| rank.prefix_queries += whole(value),
        "prefix_cache_hits_total" => |rank, value| rank.prefix_hits += whole(value),
        "num_preemptions_total" => |rank, value| rank.preemptions += whole(value),
        _ => return None,
    };
    Some(set)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let (name, labels, rest) = match line.split_once('{') {
        Some((name, rest)) => {
            let end = labels_end(rest)?;
            (name, rest.get(..end)?, rest.get(end + 1..)?)
        }
        None => {
            let (name, rest) = line.split_once(char::is_whitespace)?;
            (name, "", rest)
        }
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Finds the closing brace, which may also stand inside a quoted value.
fn labels_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}

/// Reads a label's value as a number; a value never needs unescaping then.
fn number<T: std::str::FromStr>(labels: &str, name: &str) -> Option<T> {
    labels.split(',').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        if key.trim() != name {
            return None;
        }
        value.trim().trim_matches('"').parse().ok()
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and NaN becomes 0"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}

fn narrow(value: f64) -> u32 {
    u32::try_from(whole(value)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP process_start_time_seconds Start time.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.79600000125e+09
vllm:num_requests_running{engine="0",model_name="a,b}c"} 3.0
vllm:num_requests_running{engine="1",model_name="a"} 1.0
vllm:num_requests_waiting{engine="0",model_name="a"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="a"} 0.25
vllm:prefix_cache_queries_total{engine="0",model_name="a"} 640.0 1796000000000
vllm:prefix_cache_hits_total{engine="0",model_name="a"} 320.0
vllm:cache_config_info{block_size="32",num_gpu_blocks="1024",engine="0"} 1.0
broken{line
vllm:num_requests_running
"#;

    #[test]
    fn vllm_metrics_are_read() {
        let status = EngineStatus::parse(TEXT);
        assert_eq!(status.started_ms, Some(1_796_000_001_250));
        assert_eq!((status.block_size, status.kv_blocks), (Some(32), Some(1024)));
        let rank = status.rank(Rank(0)).unwrap();
        assert_eq!((rank.running, rank.waiting, rank.prefix_queries, rank.prefix_hits), (3, 2, 640, 320));
        assert!((rank.kv_usage - 0.25).abs() < f64::EPSILON);
        assert_eq!(status.rank(Rank(1)).unwrap().running, 1);
    }

    #[test]
    fn nonsense_is_an_empty_status() {
        for text in
            ["", "x", "{", "vllm:num_requests_running NaN", "a{b=\"\\", "process_start_time_seconds abc"]
        {
            let status = EngineStatus::parse(text);
            assert_eq!(status.started_ms, None, "{text}");
        }
    }
}
