//! What is held of fetched media, and of what is made of them.

use bytes::Bytes;
use frontend::{Config, HandOverConfig};
use http::StatusCode;
use ports::media_source::memory::Resource;
use serde_json::{Value, json};

use crate::rig::{MODEL, Rig, Whole, config, png, reply, until};

const FIRST: &str = "http://origin.example/i.png";
const SECOND: &str = "http://origin.example/j.png";
const SLOW: &str = "http://slow.example/k.png";

/// A frontend with a worker and an origin.
async fn rig(amend: impl FnOnce(&mut Config)) -> Rig {
    let mut config = config();
    amend(&mut config);
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    rig
}

/// Puts an image of so many bytes at a URL.
fn put(rig: &Rig, url: &str, len: usize) {
    let mut bytes = png(u32::try_from(28 + url.len()).unwrap(), 28).0.to_vec();
    bytes.extend(url.bytes());
    bytes.resize(len, 0);
    rig.media.put(url, Resource { bytes: Bytes::from(bytes), ..Resource::default() });
}

async fn ask(rig: &Rig, urls: &[&str]) -> Whole {
    let image = |url: &&str| json!({"type": "image_url", "image_url": {"url": url}});
    let content: Vec<Value> = urls.iter().map(image).collect();
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": content}]});
    rig.chat(&body.to_string()).await
}

/// Checks that a request was refused for good, and returns what its client is told.
fn refused_for_good(answer: &Whole) -> Value {
    let got = (answer.status, answer.code(), answer.header("retry-after"));
    assert_eq!(got, (StatusCode::PAYLOAD_TOO_LARGE, "request_too_large".to_owned(), None));
    answer.json()["error"].clone()
}

#[tokio::test]
async fn an_item_that_brings_its_request_above_the_limit_is_read_no_further_and_named() {
    let rig = rig(|config| config.media.request_bytes_max = 64 << 10).await;
    put(&rig, FIRST, 40_000);
    put(&rig, SECOND, 4 << 20);
    let error = refused_for_good(&ask(&rig, &[FIRST, SECOND]).await);
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("media item 1: "), "{message}");
    assert!(message.contains("65536 bytes (media.request_bytes_max)"), "{message}");
    assert!(error["param"].as_str().unwrap().starts_with("messages[0].content[1]"), "{error}");
    assert!(rig.media.read_bytes() <= 40_000 + (64 << 10), "{}", rig.media.read_bytes());
    assert!(rig.bodies().is_empty());
    // The same bytes are held once, however often they stand in a request.
    assert_eq!(ask(&rig, &[FIRST, FIRST, FIRST]).await.status, StatusCode::OK);
    // Nothing of it is held against the URL.
    put(&rig, SECOND, 20_000);
    assert_eq!(ask(&rig, &[FIRST, SECOND]).await.status, StatusCode::OK);
}

#[tokio::test]
async fn media_beyond_the_whole_budget_are_refused_for_good() {
    let rig = rig(|config| config.limits.held_bytes_max = 96 << 10).await;
    put(&rig, FIRST, 30_000);
    put(&rig, SECOND, 30_001);
    // Fetched, two of them fit; not the data URIs made of them besides.
    for urls in [&[FIRST, SECOND], &[SECOND, FIRST]] {
        let error = refused_for_good(&ask(&rig, urls).await);
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("98304 bytes (limits.held_bytes_max)"), "{message}");
    }
    assert!(rig.bodies().is_empty());
    // One text, however often it stands in the body; and the share is given back each time.
    for _ in 0..3 {
        assert_eq!(ask(&rig, &[FIRST, FIRST, FIRST]).await.status, StatusCode::OK);
    }
    put(&rig, SECOND, 100_000);
    let error = refused_for_good(&ask(&rig, &[FIRST, SECOND]).await);
    assert!(error["message"].as_str().unwrap().contains("media item 1: "), "{error}");
}

#[tokio::test]
async fn fetched_media_are_held_among_bodies_whichever_way_they_are_handed_over() {
    for way in [HandOverConfig::Data, HandOverConfig::Url] {
        let rig = rig(|config| {
            config.media.hand_over = way;
            config.media.budget_ms = 20;
            config.limits.held_bytes_max = 96 << 10;
        })
        .await;
        put(&rig, FIRST, 39_000);
        put(&rig, SECOND, 38_000);
        put(&rig, SLOW, 1000);
        rig.media.hold(SLOW);
        let meanwhile = async {
            until("the first image is held", || rig.media.read_bytes() == 39_000).await;
            put(&rig, SECOND, 60_000);
            let shed = ask(&rig, &[SECOND]).await;
            put(&rig, SECOND, 38_000);
            rig.media.release(SLOW);
            shed
        };
        let (held, shed) = tokio::join!(ask(&rig, &[FIRST, SLOW]), meanwhile);
        assert_eq!(held.status, StatusCode::OK, "{:?}", held.body);
        assert_eq!((shed.status, shed.code().as_str()), (StatusCode::TOO_MANY_REQUESTS, "overloaded"));
        assert_eq!(shed.header("retry-after"), Some("1"));
        assert_eq!(ask(&rig, &[SECOND]).await.status, StatusCode::OK);
    }
}
