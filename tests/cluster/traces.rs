//! One trace across processes: what a client began goes on in frontend and engine, as a collector sees it.

use std::net::SocketAddr;
use std::time::Duration;

use otlp_collector::{Collector, Config, Span};
use serde_json::{Value, json};

use crate::images::Picture;
use crate::processes::{Cluster, Shape};
use crate::up::DEADLINE;

/// The span that a client names as its own.
pub(crate) const ROOT: &str = "00f067aa0ba902b7";

/// A collector, and a cluster whose processes send it their spans.
pub(crate) async fn traced(shape: Shape) -> (Collector, Cluster) {
    let free = SocketAddr::from(([127, 0, 0, 1], 0));
    let collector = Collector::start(Config { listen: free, http_listen: free }).await.unwrap();
    let otlp_port = Some(collector.address().port());
    (collector, Cluster::shaped(Shape { otlp_port, ..shape }).await)
}

/// Waits until a trace has spans of these names, and returns all it has.
pub(crate) async fn spans_of(
    collector: &Collector,
    trace: &str,
    names: &[&str],
    cluster: &Cluster,
) -> Vec<Span> {
    let end = tokio::time::Instant::now() + DEADLINE;
    loop {
        let spans = collector.spans(Some(trace));
        let missing: Vec<_> =
            names.iter().filter(|name| spans.iter().all(|span| span.name != **name)).collect();
        if missing.is_empty() {
            return spans;
        }
        let has: Vec<_> = spans.iter().map(|span| (&span.service, &span.name)).collect();
        assert!(
            tokio::time::Instant::now() < end,
            "{missing:?} are missing, there are {has:?}\n{}",
            cluster.log()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let mut found = spans.iter().filter(|span| span.name == name);
    let span = found.next().unwrap();
    assert!(found.next().is_none(), "{name} is there twice");
    span
}

/// Sends a chat as part of a trace; returns its usage.
pub(crate) async fn chat(cluster: &Cluster, frontend: usize, trace: &str, body: &Value) -> Value {
    let request = cluster.http.post(format!("{}/v1/chat/completions", cluster.frontends[frontend]));
    let request = request.header("traceparent", format!("00-{trace}-{ROOT}-01")).json(body);
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{}\n{}", answer.status(), cluster.log());
    answer.json::<Value>().await.unwrap()["usage"].clone()
}

fn two_images() -> Value {
    let image = |seed| {
        let url = Picture { width: 112, height: 84, seed }.data_uri();
        json!({"type": "image_url", "image_url": {"url": url}})
    };
    let text =
        json!({"type": "text", "text": "unutterable secret, told at some length to fill a block or two"});
    json!({"model": "tiny-vl", "max_tokens": 3, "messages": [{"role": "user", "content": [image(1), text, image(2)]}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_leads_from_the_client_to_the_engine() {
    let (collector, cluster) = traced(Shape::default()).await;
    let (first, second) = ("4bf92f3577b34da6a3ce929d0e0e4736", "4bf92f3577b34da6a3ce929d0e0e4737");
    chat(&cluster, 0, first, &two_images()).await;
    cluster.settled().await;
    let usage = chat(&cluster, 0, second, &two_images()).await;
    let names = [
        "request",
        "preprocess",
        "image",
        "match",
        "place",
        "proxy",
        "generate",
        "queue",
        "prefill",
        "decode",
    ];
    let spans = spans_of(&collector, second, &names, &cluster).await;
    let below = |child: &str, parent: &str| {
        assert_eq!(
            named(&spans, child).parent_span_id,
            named(&spans, parent).span_id,
            "{child} below {parent}"
        );
    };
    assert_eq!(named(&spans, "request").parent_span_id, ROOT);
    for (child, parent) in [
        ("preprocess", "request"),
        ("match", "request"),
        ("place", "request"),
        ("proxy", "request"),
        ("generate", "proxy"),
        ("queue", "generate"),
        ("prefill", "generate"),
        ("decode", "generate"),
    ] {
        below(child, parent);
    }
    let images: Vec<&Span> = spans.iter().filter(|span| span.name == "image").collect();
    let preprocess = named(&spans, "preprocess");
    assert_eq!(images.len(), 2);
    for (index, image) in images.iter().enumerate() {
        assert_eq!(image.parent_span_id, preprocess.span_id);
        let of = |name: &str| image.attributes[name].as_u64();
        assert_eq!((of("index"), of("width"), of("height")), (Some(index as u64), Some(112), Some(84)));
    }
    for (name, service) in [
        ("request", "sightline-frontend"),
        ("place", "sightline-frontend"),
        ("generate", "sightline-engine-sim"),
    ] {
        assert_eq!(named(&spans, name).service, service);
    }
    let (place, proxy) = (&named(&spans, "place").attributes, &named(&spans, "proxy").attributes);
    let cached = &usage["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() > 0);
    assert_eq!((&proxy["predicted_cached_tokens"], &proxy["actual_cached_tokens"]), (cached, cached));
    assert_eq!(proxy["predicted_prompt_tokens"], usage["prompt_tokens"]);
    assert_eq!(proxy["actual_prompt_tokens"], usage["prompt_tokens"]);
    assert_eq!(proxy["verdict"], "match");
    assert_eq!((&place["worker"], &place["reason"]), (&proxy["worker"], &json!("kv")));
    let terms = ["queue_ms", "fetch_ms", "encode_ms", "prefill_ms", "decode_ms", "pressure_ms"];
    let sum: f64 = terms.iter().map(|term| place[*term].as_f64().unwrap()).sum();
    assert!((sum - place["total_ms"].as_f64().unwrap()).abs() < 1e-6, "{place:?}");
    assert_eq!(named(&spans, "generate").attributes["cached_tokens"], *cached);
    let told = serde_json::to_string(&collector.spans(None)).unwrap();
    for hidden in ["unutterable", "data:image", "base64"] {
        assert!(!told.contains(hidden), "a span tells {hidden}");
    }
    assert_eq!(cluster.loud_lines(), Vec::<String>::new());
}
