//! Requests that change how engines process their media: what is known of these media holds no more.

use http::StatusCode;
use serde_json::{Value, json};

use crate::rig::{MODEL, Rig, png, reply};

/// A chat about one image, with a member of its own beside the messages.
fn about(member: &str, value: &Value) -> String {
    let url = format!("data:image/png;base64,{}", png(280, 224).1);
    let image = json!({"type": "image_url", "image_url": {"url": url}});
    json!({"model": MODEL, "messages": [{"role": "user", "content": [image]}], member: value}).to_string()
}

async fn lost(rig: &Rig) -> f64 {
    let text = String::from_utf8(rig.get("/metrics").await.body.to_vec()).unwrap();
    let name = "sightline_fallbacks_total{reason=\"media-kwargs\"} ";
    text.lines().find_map(|line| line.strip_prefix(name)).map_or(0.0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn they_get_no_credit_for_media_and_say_why() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    // The image is resident, as it is by itself.
    assert_eq!(rig.chat(&about("n", &json!(1))).await.status, StatusCode::OK);
    for (member, value) in
        [("mm_processor_kwargs", json!({"max_pixels": 25088})), ("media_io_kwargs", json!({"image": {}}))]
    {
        let (body, before) = (about(member, &value), lost(&rig).await);
        let explained = rig.post("/v1/explain", &body).await.json();
        assert_eq!(explained["fallback"], "media-kwargs", "{explained}");
        assert_eq!(explained["media"][0]["fallback"], "media-kwargs", "{explained}");
        assert_eq!((&explained["confidence"], &explained["predicted"]), (&json!("unknown"), &Value::Null));
        assert_eq!(explained["media"][0]["tokens"], Value::Null);
        assert_eq!(explained["candidates"][0]["media_resident"], 0, "{explained}");
        let answer = rig.chat(&body).await;
        assert_eq!(answer.header("x-sightline-fallback"), Some("media-kwargs"));
        assert_eq!(answer.header("x-sightline-cached-tokens"), None);
        assert!((lost(&rig).await - before - 2.0).abs() < 1e-9, "explained once, answered once");
    }
}

#[tokio::test]
async fn kwargs_that_say_nothing_change_nothing() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    assert_eq!(rig.chat(&about("n", &json!(1))).await.status, StatusCode::OK);
    for value in [json!({}), Value::Null] {
        let explained = rig.post("/v1/explain", &about("mm_processor_kwargs", &value)).await.json();
        assert_eq!((&explained["fallback"], &explained["confidence"]), (&Value::Null, &json!("exact")));
        assert_eq!(explained["media"][0]["tokens"], 80);
        assert_eq!(explained["candidates"][0]["media_resident"], 1, "{explained}");
    }
    let text = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}],
        "mm_processor_kwargs": {"max_pixels": 25088}});
    let explained = rig.post("/v1/explain", &text.to_string()).await.json();
    assert_eq!(explained["fallback"], Value::Null, "there are no media to lose credit for");
    assert!(lost(&rig).await.abs() < 1e-9);
}
