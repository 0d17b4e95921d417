//! What a request costs before it is placed: `cargo bench -p prompt --bench prepare`.
#![expect(clippy::disallowed_types, reason = "a benchmark tells the time")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark fails by panicking and reports by printing"
)]

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use media_geometry::ImageSize;
use prompt::{
    ChatRequest, Clock, DataUri, MediaEdit, MediaFact, MediaSource, Model, ModelFiles, ModelOptions,
    PrepareOptions, media_id,
};

const WORDS: [&str; 12] =
    ["harbor", "quartz", "raven", "fjord", "amber", "the", "of", "a", "nectar", "lagoon", "pollen", "every"];

fn words(count: usize, seed: usize) -> String {
    let mut text = String::new();
    for index in 0..count {
        let word = WORDS.get((index * 7 + seed * 5 + index / 3) % WORDS.len()).unwrap();
        write!(text, "{word} ").unwrap();
    }
    text
}

/// A conversation of so many turns, some of whose user messages begin with an image.
fn conversation(turns: usize, words_each: usize, images: usize) -> Bytes {
    let mut messages = vec![serde_json::json!({"role": "system", "content": words(words_each, 99)})];
    for turn in 0..turns {
        let text = serde_json::json!({"type": "text", "text": words(words_each, turn)});
        let url = format!("http://images.example/{turn}.png");
        let image = serde_json::json!({"type": "image_url", "image_url": {"url": url}});
        let content = if turn < images { vec![image, text] } else { vec![text] };
        messages.push(serde_json::json!({"role": "user", "content": content}));
        messages.push(serde_json::json!({"role": "assistant", "content": words(words_each, turn + 50)}));
    }
    messages.push(serde_json::json!({"role": "user", "content": "And now?"}));
    let body =
        serde_json::json!({"model": "tiny-vl", "messages": messages, "stream": true, "max_tokens": 64});
    Bytes::from(body.to_string())
}

fn facts(request: &ChatRequest) -> Vec<MediaFact> {
    let fact = |index| MediaFact {
        index,
        id: Some(media_id(&[u8::try_from(index).unwrap()])),
        size: Some(ImageSize::new(640, 480)),
    };
    (0..request.media().len()).map(fact).collect()
}

/// Runs a task for about a second; answers the median time of a run.
fn measure<T>(name: &str, mut task: impl FnMut() -> T) {
    let (started, mut times) = (Instant::now(), Vec::new());
    while started.elapsed() < Duration::from_millis(800) || times.len() < 20 {
        let start = Instant::now();
        black_box(task());
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let at = |share: usize| times.get(times.len() * share / 100).unwrap().as_secs_f64() * 1e6;
    println!("{name:<52} p50 {:>9.1} µs   p95 {:>9.1} µs", at(50), at(95));
}

fn main() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tiny-vl");
    let model = Model::new(&ModelFiles::read(&directory).unwrap(), ModelOptions::default()).unwrap();
    let options = PrepareOptions { block_sizes: &[16], ..PrepareOptions::default() };
    for (name, body) in [
        ("short text", conversation(0, 20, 0)),
        ("8k tokens, text", conversation(10, 155, 0)),
        ("8k tokens, 4 images", conversation(8, 155, 4)),
        ("64k tokens, text", conversation(43, 300, 0)),
    ] {
        let request = ChatRequest::parse(&body).unwrap();
        let facts = facts(&request);
        let prepared = model.prepare(&request, &facts, &options).unwrap();
        println!("{name}: {} bytes, {} tokens", body.len(), prepared.tokens.len());
        measure("  parse", || ChatRequest::parse(&body).unwrap());
        measure("  render", || model.render(&request, Clock::default()).unwrap());
        let text = model.render(&request, Clock::default()).unwrap().unwrap();
        measure("  tokenise, segments cached", || model.tokenize(&text, false).unwrap());
        let prompt = model.prompt(&request, &facts, Clock::default()).unwrap();
        measure("  keys", || prompt.clone().with_keys(&facts, &[16], options.scope));
        measure("  prepare in all", || model.prepare(&request, &facts, &options).unwrap());
        let cold = ModelOptions { segment_cache_bytes_max: 0, ..ModelOptions::default() };
        let cold = Model::new(&ModelFiles::read(&directory).unwrap(), cold).unwrap();
        measure("  prepare in all, nothing cached", || cold.prepare(&request, &facts, &options).unwrap());
    }
    data_uri();
}

fn data_uri() {
    let image: Vec<u8> = (0..768 * 1024_u32)
        .map(|index| u8::try_from(index.wrapping_mul(2_654_435_761) >> 24).unwrap())
        .collect();
    let url = format!("data:image/png;base64,{}", STANDARD.encode(&image));
    let part = serde_json::json!({"type": "image_url", "image_url": {"url": url}});
    let body =
        Bytes::from(serde_json::json!({"messages": [{"role": "user", "content": [part]}]}).to_string());
    println!("data URI: {} bytes", body.len());
    measure("  memcpy", || body.to_vec());
    measure("  blake3 of the image", || media_id(&image));
    measure("  parse", || ChatRequest::parse(&body).unwrap());
    let request = ChatRequest::parse(&body).unwrap();
    let uri = || match &request.media().first().unwrap().source {
        MediaSource::Data(uri) => uri.clone(),
        MediaSource::Url(_) | MediaSource::Local(_) | MediaSource::Absent | MediaSource::Opaque => {
            unreachable!()
        }
    };
    measure("  decode", || uri().decode(u64::MAX).unwrap());
    measure("  identify", || uri().identify(u64::MAX, <[u8]>::len).unwrap());
    let edit = MediaEdit { index: 0, uuid: Some("0".repeat(64)), replaces_url: false, unnames: false };
    measure("  rewrite", || request.outline(std::slice::from_ref(&edit)).fill(|_| None));
    measure("  spell as a data URI", || DataUri::spell("image/png", &image));
}
