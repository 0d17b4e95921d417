//! Origins that are slower than a request's budget.

use frontend::Config;
use http::StatusCode;
use ports::media_source::memory::Resource;
use serde_json::{Value, json};

use crate::rig::{MODEL, Rig, SOON, config, png, reply};

const SLOW: &str = "http://slow.test/a.png";
const FAST: &str = "http://fast.test/b.png";

/// A frontend that does not wait for slow origins, and knows the fast one's image.
async fn rig() -> Rig {
    let mut config: Config = config();
    config.media.budget_ms = 20;
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    for (url, side) in [(SLOW, 56), (FAST, 112)] {
        rig.media.put(url, Resource { bytes: png(side, side).0, ..Resource::default() });
    }
    rig.media.hold(SLOW);
    known(&rig, FAST).await;
    rig
}

/// Explains a request about one image until the image is known, however long a busy machine takes; returns it.
async fn known(rig: &Rig, url: &str) -> Value {
    let known = async {
        loop {
            let explained = rig.post("/v1/explain", &about(&[url])).await.json();
            if explained["confidence"] == "exact" {
                return explained;
            }
        }
    };
    tokio::time::timeout(SOON, known).await.unwrap()
}

fn about(urls: &[&str]) -> String {
    let image = |url: &&str| json!({"type": "image_url", "image_url": {"url": url}});
    let mut content =
        vec![json!({"type": "text", "text": "What do you see in these two images, in detail?"})];
    content.extend(urls.iter().map(image));
    json!({"model": MODEL, "messages": [{"role": "user", "content": content}]}).to_string()
}

/// Waits until a request has its place at the worker.
async fn placed(rig: &Rig) {
    let placed = async { while rig.get("/admin/load").await.json()["holders"][0]["active_requests"] != 1 {} };
    tokio::time::timeout(SOON, placed).await.unwrap();
}

/// The images of the one body that an engine got: URL and uuid.
fn sent(rig: &Rig) -> Vec<(String, String)> {
    let bodies = rig.bodies();
    assert_eq!(bodies.len(), 1);
    let body: Value = serde_json::from_slice(&bodies[0]).unwrap();
    let parts =
        body["messages"][0]["content"].as_array().unwrap().iter().filter(|part| part["type"] == "image_url");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    parts.map(|part| (text(&part["image_url"]["url"]), text(&part["uuid"]))).collect()
}

#[tokio::test]
async fn a_slow_origin_costs_its_image_and_what_follows_and_the_engine_gets_its_bytes() {
    let rig = rig().await;
    let body = about(&[FAST, SLOW]);
    let explained = rig.post("/v1/explain", &body).await.json();
    assert_eq!(
        (&explained["fallback"], &explained["confidence"]),
        (&json!("media-unsized"), &json!("unknown"))
    );
    assert_eq!(
        (&explained["media"][0]["tokens"], &explained["media"][0]["fallback"]),
        (&json!(16), &Value::Null)
    );
    assert_eq!(explained["media"][1]["source"], "url-late");
    assert_eq!(explained["media"][1]["fallback"], "media-unsized");

    // Nothing is sent while a URL's bytes are not here.
    let answer = async {
        let answer = rig.chat(&body).await;
        assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
        answer
    };
    let release = async {
        placed(&rig).await;
        assert!(rig.bodies().is_empty());
        rig.media.release(SLOW);
    };
    let (answer, ()) = tokio::join!(answer, release);
    assert_eq!(answer.header("x-sightline-fallback"), Some("media-unsized"));
    assert_eq!(answer.header("x-sightline-prompt-tokens"), None, "nothing was predicted");
    let images = sent(&rig);
    let expected = [png(112, 112).0, png(56, 56).0].map(|bytes| prompt::media_id(&bytes).as_str().to_owned());
    assert!(images.iter().all(|(url, _)| url.starts_with("data:image/png;base64,")), "{images:?}");
    assert_eq!(images.into_iter().map(|(_, uuid)| uuid).collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_look_up_that_nobody_waits_for_ends_for_the_next_request() {
    let rig = rig().await;
    let body = about(&[SLOW]);
    assert_eq!(rig.post("/v1/explain", &body).await.json()["fallback"], "media-unsized");
    rig.media.release(SLOW);
    let explained = known(&rig, SLOW).await;
    assert_eq!(explained["media"][0]["tokens"], 4);
}

#[tokio::test]
async fn a_late_failure_reaches_the_client_and_no_engine() {
    let rig = rig().await;
    rig.media.remove(SLOW);
    let body = about(&[FAST, SLOW]);
    let release = async {
        placed(&rig).await;
        rig.media.release(SLOW);
    };
    let (answer, ()) = tokio::join!(rig.chat(&body), release);
    assert_eq!(answer.status.as_u16(), 400, "{:?}", answer.body);
    assert!(
        answer.json()["error"]["message"].as_str().unwrap().contains("media item 1"),
        "{:?}",
        answer.body
    );
    assert!(rig.bodies().is_empty());
    let load = rig.get("/admin/load").await.json();
    assert_eq!(
        load["holders"][0]["active_requests"].as_u64().unwrap_or_default(),
        0,
        "the place is given back: {load}"
    );
}

#[tokio::test]
async fn a_late_image_of_too_many_pixels_reaches_no_engine() {
    let rig = rig().await;
    rig.media.put(SLOW, Resource { bytes: png(30_000, 30_000).0, ..Resource::default() });
    let release = async {
        placed(&rig).await;
        rig.media.release(SLOW);
    };
    let body = about(&[FAST, SLOW]);
    let (answer, ()) = tokio::join!(rig.chat(&body), release);
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "invalid_image"));
    let error = answer.json()["error"].clone();
    assert!(
        error["message"].as_str().unwrap().contains("media item 1: the image has 30000x30000"),
        "{error}"
    );
    assert!(rig.bodies().is_empty());
}
