//! How fetched media reach the engine, and who else may have them.

use std::sync::Arc;

use bytes::Bytes;
use frontend::{Config, HandOverConfig};
use http::{Method, StatusCode};
use membership::card::{MediaDir, MediaDirKey};
use parking_lot::Mutex;
use ports::engine::Endpoint;
use ports::engine::memory::{Reply, Then};
use ports::media_source::memory::Resource;
use serde_json::{Value, json};

use crate::rig::{MODEL, Rig, config, png, reply};

const URL: &str = "http://origin.example/i.png";
const AGENT: &str = "http://agent.example:81";

async fn rig(hand_over: HandOverConfig, amend: impl FnOnce(&mut Config)) -> Rig {
    let mut config = config();
    config.media.hand_over = hand_over;
    amend(&mut config);
    Rig::start_with(config).await
}

fn put(rig: &Rig, bytes: &Bytes) {
    rig.media.put(URL, Resource { bytes: bytes.clone(), ..Resource::default() });
}

/// Sends a chat with the image, and returns the part that the engine got.
async fn handed(rig: &Rig) -> Value {
    let part = json!({"type": "image_url", "image_url": {"url": URL}});
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": [part]}]});
    let answer = rig.chat(&body.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    let sent: Value = serde_json::from_slice(rig.bodies().last().unwrap()).unwrap();
    sent["messages"][0]["content"][0].clone()
}

/// Sends a chat with the image, and returns the path of the URL that the engine got for it.
async fn handed_path(rig: &Rig) -> String {
    let part = handed(rig).await;
    let url = part["image_url"]["url"].as_str().unwrap();
    url.strip_prefix(rig.frontend.media_url().unwrap()).unwrap().to_owned()
}

#[tokio::test]
async fn the_media_listener_gives_what_its_token_opens() {
    let mut rig = rig(HandOverConfig::Url, |_| ()).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let (bytes, _) = png(56, 28);
    put(&rig, &bytes);
    let path = handed_path(&rig).await;
    let id = prompt::media_id(&bytes);
    let (name, token) = path.split_once("?t=").unwrap();
    assert_eq!(name, format!("/media/{id}"));

    let answer = rig.media(Method::GET, &path, &[]).await;
    assert_eq!((answer.status, &answer.body), (StatusCode::OK, &bytes));
    let told = ["content-type", "x-content-type-options", "content-length", "accept-ranges"];
    let length = bytes.len().to_string();
    assert_eq!(
        told.map(|name| answer.header(name).unwrap()),
        ["image/png", "nosniff", length.as_str(), "bytes"]
    );
    let head = rig.media(Method::HEAD, &path, &[]).await;
    assert_eq!(
        (head.status, head.header("content-length"), head.body.len()),
        (StatusCode::OK, Some(&*length), 0)
    );
    let part = rig.media(Method::GET, &path, &[("range", "bytes=1-3")]).await;
    assert_eq!((part.status, &part.body[..]), (StatusCode::PARTIAL_CONTENT, &b"PNG"[..]));
    assert_eq!(part.header("content-range"), Some(&*format!("bytes 1-3/{length}")));
    let beyond = rig.media(Method::GET, &path, &[("range", "bytes=9999-")]).await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    let known = rig.media(Method::GET, &path, &[("if-none-match", head.header("etag").unwrap())]).await;
    assert_eq!((known.status, known.body.len()), (StatusCode::NOT_MODIFIED, 0));

    let other = prompt::media_id(b"another");
    let (kept, last) = token.split_at(token.len() - 1);
    let forged = format!("{kept}{}", if last == "0" { "1" } else { "0" });
    for (refused, status) in [
        (name.to_owned(), StatusCode::FORBIDDEN),
        (format!("{name}?t="), StatusCode::FORBIDDEN),
        (format!("{name}?t={forged}"), StatusCode::FORBIDDEN),
        (format!("/media/{other}?t={token}"), StatusCode::FORBIDDEN),
        (format!("/media/{id}.bmp?t={token}"), StatusCode::FORBIDDEN),
        (format!("/media/../media/{id}?t={token}"), StatusCode::NOT_FOUND),
        (format!("/media/?t={token}"), StatusCode::NOT_FOUND),
        (format!("/metrics?t={token}"), StatusCode::NOT_FOUND),
        ("/v1/models".to_owned(), StatusCode::NOT_FOUND),
    ] {
        let answer = rig.media(Method::GET, &refused, &[]).await;
        assert_eq!(
            (answer.status, answer.header("x-content-type-options")),
            (status, Some("nosniff")),
            "{refused}"
        );
    }
    assert_eq!(rig.media(Method::POST, &path, &[]).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(rig.media.fetches().len(), 1);
    let metrics = rig.get("/metrics").await;
    let text = std::str::from_utf8(&metrics.body).unwrap().to_owned();
    for line in [
        "sightline_media_served_total{outcome=\"denied\"} 5",
        "sightline_media_handed_over_total{way=\"url\",form=\"original\",reason=\"\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn evicted_bytes_are_fetched_again_and_only_the_same_are_given() {
    // Nothing fits into the store.
    let mut rig = rig(HandOverConfig::Url, |config| config.media.stored_bytes_max = 0).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    put(&rig, &png(56, 28).0);
    let old = handed_path(&rig).await;
    let answer = rig.media(Method::GET, &old, &[]).await;
    assert_eq!((answer.status, answer.body), (StatusCode::OK, png(56, 28).0));
    assert_eq!(rig.media.fetches().len(), 2);

    put(&rig, &png(28, 56).0);
    let answer = rig.media(Method::GET, &old, &[]).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::GONE, "media_changed"));
    // What the listener saw holds for requests too.
    let new = handed_path(&rig).await;
    assert!(new.starts_with(&format!("/media/{}?", prompt::media_id(&png(28, 56).0))), "{new}");
    let answer = rig.media(Method::GET, &new, &[]).await;
    assert_eq!((answer.status, answer.body), (StatusCode::OK, png(28, 56).0));

    rig.media.remove(URL);
    let answer = rig.media(Method::GET, &new, &[]).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_GATEWAY, "media_fetch_failed"));
}

/// A worker whose agent takes files, as long as `takes` says so; returns what the agent was asked.
async fn with_directory(rig: &mut Rig, takes: StatusCode) -> Arc<Mutex<Vec<(Method, Bytes)>>> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let asks = Arc::clone(&asked);
    rig.engine.serve(&Endpoint::parse(AGENT).unwrap(), move |request| {
        assert_eq!(request.headers["authorization"], "Bearer key");
        assert!(request.path.path().starts_with("/media/"));
        asks.lock().push((request.method.clone(), Bytes::from(request.body.concat())));
        let status = if request.method == Method::POST { StatusCode::NOT_FOUND } else { takes };
        Reply::json(status, "")
    });
    let key = MediaDirKey::new("key".to_owned());
    let dir = MediaDir { endpoint: AGENT.to_owned(), path: "/dev/shm/w 0".to_owned(), key };
    rig.worker_with("w0", |card| card.media_dir = Some(dir), |_| reply(1, 0)).await;
    asked
}

#[tokio::test]
async fn files_are_brought_once_and_named_by_path() {
    let mut rig = rig(HandOverConfig::File, |_| ()).await;
    let asked = with_directory(&mut rig, StatusCode::CREATED).await;
    let (bytes, _) = png(56, 28);
    put(&rig, &bytes);
    let id = prompt::media_id(&bytes);
    let parts = futures::future::join_all((0..4).map(|_| handed(&rig))).await;
    for part in parts {
        assert_eq!(part["uuid"], id.as_str());
        assert_eq!(part["image_url"]["url"], format!("file:///dev/shm/w%200/{id}"));
    }
    assert_eq!(*asked.lock(), [(Method::POST, Bytes::new()), (Method::PUT, bytes)]);
}

#[tokio::test]
async fn where_no_file_can_be_brought_media_go_in_the_body() {
    for (takes, reason) in
        [(StatusCode::INSUFFICIENT_STORAGE, "full"), (StatusCode::UNPROCESSABLE_ENTITY, "refused")]
    {
        let mut rig = rig(HandOverConfig::File, |_| ()).await;
        with_directory(&mut rig, takes).await;
        check_body(&rig, reason, 1).await;
    }
    let mut rig = rig(HandOverConfig::File, |_| ()).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    check_body(&rig, "no-directory", 1).await;
}

#[tokio::test]
async fn an_agent_that_hangs_costs_one_deadline() {
    let mut rig = rig(HandOverConfig::File, |config| config.media.file_ms = 50).await;
    with_directory(&mut rig, StatusCode::CREATED).await;
    rig.engine.serve(&Endpoint::parse(AGENT).unwrap(), |_| Reply::events(&[]).then(Then::Hang));
    check_body(&rig, "late", 1).await;
    check_body(&rig, "failing", 1).await;
}

async fn check_body(rig: &Rig, reason: &str, count: u32) {
    let (bytes, text) = png(56, 28);
    put(rig, &bytes);
    assert_eq!(handed(rig).await["image_url"]["url"], format!("data:image/png;base64,{text}"));
    let line = format!(
        "sightline_media_handed_over_total{{way=\"data\",form=\"original\",reason=\"{reason}\"}} {count}"
    );
    let metrics = rig.get("/metrics").await;
    let metrics = std::str::from_utf8(&metrics.body).unwrap().to_owned();
    assert!(metrics.contains(&line), "{line} in {metrics}");
}

#[tokio::test]
async fn decoded_images_keep_the_identity_of_their_file() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/images/png-exif-6.png");
    let file = Bytes::from(std::fs::read(file).unwrap());
    let bitmap = media_decode::to_bitmap(&file, 1 << 20).unwrap();
    for way in [HandOverConfig::Data, HandOverConfig::Url, HandOverConfig::File] {
        let mut rig = rig(way, |config| config.media.decode = true).await;
        let asked = with_directory(&mut rig, StatusCode::CREATED).await;
        put(&rig, &file);
        let part = handed(&rig).await;
        let (id, own) = (prompt::media_id(&file), prompt::media_id(&bitmap));
        assert_eq!(part["uuid"], id.as_str());
        let url = part["image_url"]["url"].as_str().unwrap();
        match way {
            HandOverConfig::Data => {
                assert_eq!(url.as_bytes(), prompt::DataUri::spell("image/bmp", &bitmap));
            }
            HandOverConfig::Url => {
                let path = url.strip_prefix(rig.frontend.media_url().unwrap()).unwrap();
                assert!(path.starts_with(&format!("/media/{id}.bmp?t=")), "{path}");
                let answer = rig.media(Method::GET, path, &[]).await;
                assert_eq!(
                    (answer.header("content-type"), &answer.body[..]),
                    (Some("image/bmp"), &bitmap[..])
                );
            }
            HandOverConfig::File => {
                assert!(url.ends_with(own.as_str()), "{url}");
                assert_eq!(asked.lock()[1].1, bitmap);
            }
        }
        // A header without pixels is handed over as it is.
        put(&rig, &png(56, 28).0);
        let id = prompt::media_id(&png(56, 28).0);
        let part = handed(&rig).await;
        let url = part["image_url"]["url"].as_str().unwrap();
        let as_is = match way {
            HandOverConfig::Data => url == format!("data:image/png;base64,{}", png(56, 28).1),
            HandOverConfig::Url => url.contains(&format!("/media/{id}?t=")),
            HandOverConfig::File => url.ends_with(id.as_str()),
        };
        assert!(as_is, "{url}");
        let metrics = rig.get("/metrics").await;
        let metrics = std::str::from_utf8(&metrics.body).unwrap().to_owned();
        assert!(metrics.contains("sightline_media_undecoded_total{reason=\"broken\"} 1"), "{metrics}");
    }
}
