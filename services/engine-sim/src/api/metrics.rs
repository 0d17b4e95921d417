//! `GET /metrics`: vLLM's names for what a router reads, and `engine_sim_*` for what tests count.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;

use super::Engine;
use crate::rank::RankState;

/// Answers in the Prometheus text format.
pub(crate) async fn metrics(State(engine): State<Arc<Engine>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page(&engine))
}

fn page(engine: &Engine) -> String {
    let mut page = Page { text: String::new(), model: engine.model_name.clone() };
    page.family("process_start_time_seconds", "Start time of the process since unix epoch in seconds.");
    page.line("process_start_time_seconds", &[], engine.started.as_secs_f64());
    let states: Vec<RankState> = engine.ranks.iter().map(|rank| rank.state()).collect();
    gauges(&mut page, &states);
    counters(&mut page, &states);
    cache_config(&mut page, engine);
    media(&mut page, engine, &states);
    page.text
}

fn gauges(page: &mut Page, states: &[RankState]) {
    page.ranks("vllm:num_requests_running", "Requests in model execution batches.", states, |s| s.running);
    page.ranks("vllm:num_requests_waiting", "Requests waiting to be processed.", states, |s| s.waiting);
    page.family("vllm:num_requests_waiting_by_reason", "Requests waiting, by reason.");
    for (rank, state) in states.iter().enumerate() {
        for (reason, waiting) in [("capacity", state.waiting), ("deferred", 0)] {
            page.rank_line("vllm:num_requests_waiting_by_reason", rank, &[("reason", reason)], waiting);
        }
    }
    page.ranks("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", states, |s| s.usage);
}

fn counters(page: &mut Page, states: &[RankState]) {
    let mut counter = |name, help, value: fn(&RankState) -> u64| page.ranks(name, help, states, value);
    counter("vllm:prefix_cache_queries_total", "Prefix cache queries, in tokens.", |s| {
        s.totals.prefix_queries
    });
    counter("vllm:prefix_cache_hits_total", "Prefix cache hits, in tokens.", |s| s.totals.prefix_hits);
    counter("vllm:num_preemptions_total", "Preemptions.", |s| s.totals.preemptions);
    counter("vllm:prompt_tokens_total", "Prefill tokens processed.", |s| s.totals.prompt_tokens);
    counter("vllm:prompt_tokens_cached_total", "Prompt tokens from caches.", |s| {
        s.totals.prompt_tokens_cached
    });
    counter("vllm:generation_tokens_total", "Generation tokens processed.", |s| s.totals.generation_tokens);
    page.family("vllm:prompt_tokens_by_source_total", "Prompt tokens by source.");
    for (rank, state) in states.iter().enumerate() {
        let cached = state.totals.prompt_tokens_cached;
        let sources = [
            ("local_compute", state.totals.prompt_tokens.saturating_sub(cached)),
            ("local_cache_hit", cached),
            ("external_kv_transfer", 0),
        ];
        for (source, tokens) in sources {
            page.rank_line("vllm:prompt_tokens_by_source_total", rank, &[("source", source)], tokens);
        }
    }
    page.family("vllm:request_success_total", "Finished requests by reason.");
    for (rank, state) in states.iter().enumerate() {
        let totals = &state.totals;
        for (reason, requests) in
            [("stop", totals.stopped), ("length", totals.cut), ("abort", totals.aborted)]
        {
            page.rank_line("vllm:request_success_total", rank, &[("finished_reason", reason)], requests);
        }
    }
}

fn cache_config(page: &mut Page, engine: &Engine) {
    page.family("vllm:cache_config_info", "Information of the LLMEngine CacheConfig.");
    let block_size = engine.block_size.to_string();
    let blocks = engine.kv_blocks.to_string();
    let tokens = (u64::from(engine.kv_blocks) * u64::from(engine.block_size)).to_string();
    for rank in 0..engine.ranks.len() {
        let rank = rank.to_string();
        let labels = [
            ("engine", rank.as_str()),
            ("block_size", block_size.as_str()),
            ("enable_prefix_caching", "True"),
            ("kv_cache_size_tokens", tokens.as_str()),
            ("num_gpu_blocks", blocks.as_str()),
        ];
        page.line("vllm:cache_config_info", &labels, 1);
    }
}

fn media(page: &mut Page, engine: &Engine, states: &[RankState]) {
    let (queries, hits) = engine.media.cache_counts();
    page.family("vllm:mm_cache_queries_total", "Multi-modal cache queries, in items.");
    page.rank_line("vllm:mm_cache_queries_total", 0, &[], queries);
    page.family("vllm:mm_cache_hits_total", "Multi-modal cache hits, in items.");
    page.rank_line("vllm:mm_cache_hits_total", 0, &[], hits);
    let counts = &engine.media.counts;
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    for (name, help, value) in [
        ("engine_sim_media_fetches_total", "Fetches of media begun.", load(&counts.fetches)),
        (
            "engine_sim_media_fetch_failures_total",
            "Fetches that brought nothing.",
            load(&counts.fetch_failures),
        ),
        ("engine_sim_media_fetched_bytes_total", "Bytes that fetches brought.", load(&counts.fetched_bytes)),
    ] {
        page.family(name, help);
        page.line(name, &[], value);
    }
    let mut counter = |name, help, value: fn(&RankState) -> u64| page.ranks(name, help, states, value);
    counter("engine_sim_event_batches_total", "Batches of events published.", |s| s.event_batches);
    counter("engine_sim_images_encoded_total", "Images encoded.", |s| s.totals.encoded_items);
    counter("engine_sim_image_tokens_encoded_total", "Image tokens encoded.", |s| s.totals.encoded_tokens);
}

/// A page in the making.
struct Page {
    text: String,
    model: String,
}

impl Page {
    fn family(&mut self, name: &str, help: &str) {
        let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn ranks<T: Display>(
        &mut self,
        name: &str,
        help: &str,
        states: &[RankState],
        value: impl Fn(&RankState) -> T,
    ) {
        self.family(name, help);
        for (rank, state) in states.iter().enumerate() {
            self.rank_line(name, rank, &[], value(state));
        }
    }

    fn rank_line(&mut self, name: &str, rank: usize, more: &[(&str, &str)], value: impl Display) {
        let (rank, model) = (rank.to_string(), self.model.clone());
        let mut labels = vec![("engine", rank.as_str())];
        labels.extend_from_slice(more);
        labels.push(("model_name", &model));
        self.line(name, &labels, value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.write(format_args!("{name}{labels} {value}\n"));
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        if self.text.write_fmt(text).is_err() {
            tracing::debug!("metrics cannot be written");
        }
    }
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
