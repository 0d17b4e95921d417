//! What engines teach: counts of images that no family tells, options of workers, and trust.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use frontend::{Config, ModelConfig};
use http::Method;
use identity::{BlockKey, Holder, Incarnation, ModelName, Rank, WorkerId};
use membership::{Card, Change, Delta, MediaRun};
use ports::Bus;
use ports::bus::Message;
use serde_json::{Value, json};

use crate::rig::{MODEL, Rig, SOON, chat, config, png, reply, whole};

/// A configuration whose model is of a type that no family is known for.
fn without_family(test: &str) -> Config {
    let original = &config().models[0].dir;
    let dir: PathBuf = std::env::temp_dir().join(format!("sightline-{test}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for entry in std::fs::read_dir(original).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    let mut model: Value = serde_json::from_slice(&std::fs::read(dir.join("config.json")).unwrap()).unwrap();
    model["model_type"] = json!("nobody_knows_vl");
    std::fs::write(dir.join("config.json"), model.to_string()).unwrap();
    Config { models: vec![ModelConfig { name: MODEL.to_owned(), dir }], ..config() }
}

/// A chat about images of one size, told apart by a trailing byte.
fn about(images: &[u8]) -> String {
    let image = |mark: &u8| {
        let data = STANDARD.encode(bytes(*mark));
        json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}})
    };
    let mut content: Vec<Value> = images.iter().map(image).collect();
    content.push(json!({"type": "text", "text": "what is it?"}));
    json!({"model": MODEL, "messages": [{"role": "user", "content": content}]}).to_string()
}

fn bytes(mark: u8) -> Vec<u8> {
    let mut bytes = png(280, 224).0.to_vec();
    bytes.push(mark);
    bytes
}

/// What a frontend that knows the family predicts.
async fn exact_prompt(body: &str) -> u32 {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(0, 0)).await;
    let explained = rig.post("/v1/explain", body).await.json();
    assert_eq!(explained["confidence"], "exact", "{explained}");
    u32::try_from(explained["predicted"]["prompt_tokens"].as_u64().unwrap()).unwrap()
}

async fn metric(rig: &Rig, name: &str) -> f64 {
    let text = String::from_utf8(rig.get("/metrics").await.body.to_vec()).unwrap();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name}")).rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn usage_teaches_a_count_and_a_contradiction_drops_it() {
    let expected = exact_prompt(&about(&[1])).await;
    let mut rig = Rig::start_with(without_family("usage")).await;
    let counted = Arc::new(AtomicU32::new(expected));
    let told = Arc::clone(&counted);
    rig.worker("w0", move |_| reply(told.load(Ordering::Relaxed), 0)).await;

    let unknown = rig.post("/v1/explain", &about(&[1])).await.json();
    assert_eq!(
        (&unknown["confidence"], &unknown["fallback"]),
        (&json!("unknown"), &json!("media-unknown-family"))
    );
    assert_eq!(unknown["media"][0]["fallback"], "media-unknown-family");
    assert_eq!(unknown["predicted"], Value::Null);
    let answer = rig.chat(&about(&[1])).await;
    assert_eq!(answer.header("x-sightline-fallback"), Some("media-unknown-family"));

    // The same image, another of its size, and two at once: all of one count now.
    for images in [&[1_u8][..], &[2]] {
        let learned = rig.post("/v1/explain", &about(images)).await.json();
        assert_eq!((&learned["confidence"], &learned["fallback"]), (&json!("learned"), &Value::Null));
        assert_eq!(learned["predicted"]["prompt_tokens"], expected);
        assert_eq!(learned["media"][0]["tokens"], 80);
    }
    let two = rig.post("/v1/explain", &about(&[1, 2])).await.json();
    assert_eq!(two["predicted"]["prompt_tokens"], exact_prompt(&about(&[1, 2])).await);
    let answer = rig.chat(&about(&[1])).await;
    assert_eq!(answer.header("x-sightline-fallback"), None);
    assert_eq!(answer.header("x-sightline-prompt-tokens"), Some(expected.to_string().as_str()));
    let id = answer.header("x-request-id").unwrap().to_owned();
    let record = rig.get(&format!("/v1/explain/{id}")).await.json();
    assert_eq!(record["actual"]["prompt_tokens"], record["predicted"]["prompt_tokens"]);

    counted.store(expected + 7, Ordering::Relaxed);
    let answer = rig.chat(&about(&[1])).await;
    let id = answer.header("x-request-id").unwrap().to_owned();
    assert_eq!(rig.get(&format!("/v1/explain/{id}")).await.json()["verdict"], "media-count");
    let dropped = rig.post("/v1/explain", &about(&[1])).await.json();
    assert_eq!(
        (&dropped["confidence"], &dropped["fallback"]),
        (&json!("unknown"), &json!("media-unknown-family"))
    );
    assert!((metric(&rig, "sightline_lessons_contradicted").await - 1.0).abs() < 1e-9);
    assert!(metric(&rig, "sightline_fallbacks_total{reason=\"media-unknown-family\"}").await >= 3.0);
}

#[tokio::test]
async fn events_teach_a_count_by_image_and_by_size() {
    let expected = exact_prompt(&about(&[1])).await;
    let mut rig = Rig::start_with(without_family("events")).await;
    // An engine that counts nothing.
    rig.worker("w0", |_| ports::engine::memory::Reply::json(http::StatusCode::OK, "{}")).await;
    rig.chat(&about(&[1])).await;
    let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(0) };
    let key = BlockKey::new(7);
    let run = MediaRun { id: prompt::media_id(&bytes(1)), first_key: key, tokens: 80 };
    let delta = Delta {
        scheme: identity::SCHEME.to_owned(),
        model: ModelName::new(MODEL),
        worker: holder.worker.clone(),
        rank: holder.rank,
        incarnation: Incarnation { started_ms: 1, nonce: 1 },
        seq: 1,
        changes: vec![Change::Stored { parent: None, keys: vec![key], media: vec![run] }],
    };
    let message = Message {
        subject: wire::subject::kv("default", &ModelName::new(MODEL), &holder),
        payload: wire::kv::encode_delta(&delta).unwrap(),
        ..Message::default()
    };
    let learned = async {
        loop {
            rig.bus.publish(message.clone()).await.unwrap();
            let explained = rig.post("/v1/explain", &about(&[2])).await.json();
            if explained["confidence"] == "learned" {
                return explained;
            }
        }
    };
    let explained = tokio::time::timeout(SOON, learned).await.unwrap();
    assert_eq!(explained["predicted"]["prompt_tokens"], expected, "another image of the size it had");
}

#[tokio::test]
async fn media_options_of_workers_change_counts() {
    let body = about(&[1]);
    let plain = exact_prompt(&body).await;
    let kwargs = r#"{"max_pixels":25088}"#;
    let mut rig = Rig::start().await;
    rig.worker_with("w0", |card| card.template.media_kwargs = kwargs.to_owned(), |_| reply(1, 0)).await;
    let smaller = async {
        loop {
            let explained = rig.post("/v1/explain", &body).await.json();
            // Between the old options and the new ones there is no prediction.
            if explained["predicted"]["prompt_tokens"]
                .as_u64()
                .is_some_and(|tokens| tokens != u64::from(plain))
            {
                return explained["media"][0]["tokens"].clone();
            }
        }
    };
    let tokens = tokio::time::timeout(SOON, smaller).await.unwrap();
    // 25,088 pixels are 32 squares of 28 by 28; of 10 to 8 they hold 6 by 5.
    assert_eq!(tokens, 30);

    let mut config = config();
    config.media_kwargs.insert(MODEL.to_owned(), kwargs.parse().unwrap());
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let explained = rig.post("/v1/explain", &body).await.json();
    assert_eq!(explained["media"][0]["tokens"], 30, "what is configured holds at once");
}

#[tokio::test]
async fn credit_that_is_withdrawn_shows_and_comes_back() {
    let body = chat("is anybody there?");
    let expected = exact_prompt(&body).await;
    let mut rig = Rig::start().await;
    let counted = Arc::new(AtomicU32::new(expected + 1));
    let told = Arc::clone(&counted);
    rig.worker("w0", move |_| reply(told.load(Ordering::Relaxed), 0)).await;
    for _ in 0..6 {
        rig.chat(&body).await;
    }
    let shown = async |confidence: &str, fallback: Value| {
        let holds = async {
            loop {
                let explained = rig.post("/v1/explain", &body).await.json();
                if explained["confidence"] == confidence && explained["fallback"] == fallback {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, holds).await.unwrap_or_else(|_| panic!("not {confidence}"));
    };
    shown("unknown", json!("withdrawn")).await;
    let answer = rig.chat(&body).await;
    assert_eq!(answer.header("x-sightline-fallback"), Some("withdrawn"));
    counted.store(expected, Ordering::Relaxed);
    for _ in 0..8 {
        rig.chat(&body).await;
    }
    shown("exact", Value::Null).await;
}

#[tokio::test]
async fn workers_that_render_otherwise_get_no_credit() {
    let digests = prompt::ModelFiles::read(&config().models[0].dir).unwrap().digests();
    let like_ours = move |card: &mut Card| {
        card.artefacts.tokenizer.clone_from(&digests.tokenizer);
        card.artefacts.template.clone_from(&digests.template);
        card.artefacts.configs.clone_from(&digests.configs);
    };
    let mut rig = Rig::start().await;
    for name in ["same0", "same1", "tokenizer", "template", "configs", "kwargs"] {
        let change = |card: &mut Card| {
            like_ours(card);
            match name {
                "tokenizer" => card.artefacts.tokenizer = "other".to_owned(),
                "template" => card.artefacts.template = "other".to_owned(),
                "configs" => card.artefacts.configs = "other".to_owned(),
                "kwargs" => card.template.default_kwargs = r#"{"enable_thinking":false}"#.to_owned(),
                _ => {}
            }
        };
        rig.worker_with(name, change, |_| reply(1, 0)).await;
    }
    rig.worker_with("untold", |_| {}, |_| reply(1, 0)).await;
    let body = chat("hi");
    for (name, suits) in [
        ("same0", true),
        ("untold", true),
        ("tokenizer", false),
        ("template", false),
        ("configs", false),
        ("kwargs", false),
    ] {
        let headers = [("x-sightline-worker", name)];
        let explained = whole(rig.send(Method::POST, "/v1/explain", &headers, &body).await).await.json();
        let doubt = if suits { Value::Null } else { json!("other-rendering") };
        assert_eq!((&explained["worker"], &explained["fallback"]), (&json!(name), &doubt));
        assert_eq!(explained["predicted"].is_null(), !suits, "{explained}");
        assert_eq!(explained["confidence"] == "exact", suits, "{explained}");
        let candidates = explained["candidates"].as_array().unwrap();
        assert_eq!(candidates.iter().find(|it| it["worker"] == name).unwrap()["doubt"], doubt);
        let answer = whole(rig.send(Method::POST, "/v1/chat/completions", &headers, &body).await).await;
        assert_eq!(answer.header("x-sightline-fallback"), doubt.as_str());
    }
    let metrics = rig.get("/metrics").await;
    let line = "sightline_fallbacks_total{reason=\"other-rendering\"} 4";
    assert!(String::from_utf8_lossy(&metrics.body).contains(line));
}
