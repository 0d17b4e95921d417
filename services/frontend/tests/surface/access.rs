//! Who may see what.

use frontend::KeyConfig;
use http::{Method, StatusCode};

use crate::rig::{Rig, chat, config, reply, whole};

#[tokio::test]
async fn health_models_and_metrics_are_there() {
    let mut rig = Rig::start().await;
    assert_eq!(rig.get("/health/live").await.status, StatusCode::OK);
    assert_eq!(rig.get("/health/ready").await.code(), "starting");
    rig.worker("w0", |_| reply(1, 0)).await;
    let models = rig.get("/v1/models").await.json();
    assert_eq!(
        (models["object"].as_str(), models["data"][0]["id"].as_str()),
        (Some("list"), Some("tiny-vl"))
    );
    assert_eq!(rig.get("/v1/models/tiny-vl").await.status, StatusCode::OK);
    assert_eq!(rig.get("/v1/models/other").await.code(), "model_not_found");
    let workers = rig.get("/admin/workers").await.json();
    assert_eq!(workers["workers"][0]["state"], "ready", "{workers}");
    let index = rig.get("/admin/index").await.json();
    assert_eq!(index["blocks"], 0, "{index}");
    assert!(rig.get("/admin/index/tree?depth=2&limit=5").await.json()["models"]["tiny-vl"].is_array());
    assert_eq!(rig.get("/admin/index/tree?depth=x").await.status, StatusCode::BAD_REQUEST);
    let metrics = rig.get("/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).unwrap();
    for name in ["sightline_requests_total", "sightline_requests_in_flight", "sightline_replica_agreement 1"]
    {
        assert!(text.contains(name), "{name}\n{text}");
    }
}

#[tokio::test]
async fn keys_open_what_they_are_for() {
    let key = |key: &str, operator| KeyConfig { key: key.to_owned(), tenant: "t".to_owned(), operator };
    let mut config = config();
    config.listen = "0.0.0.0:0".parse().unwrap();
    config.admin_listen = Some("127.0.0.1:0".parse().unwrap());
    config.keys = vec![key("user", false), key("admin", true)];
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let status = async |method: Method, path: &'static str, key: &'static str| {
        let bearer = format!("Bearer {key}");
        let body = if method == Method::POST { chat("hi") } else { String::new() };
        whole(rig.send(method, path, &[("authorization", &bearer)], &body).await).await
    };
    let chat = "/v1/chat/completions";
    assert_eq!(rig.chat("{}").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(status(Method::POST, chat, "wrong").await.status, StatusCode::UNAUTHORIZED);
    let user = status(Method::POST, chat, "user").await;
    assert_eq!((user.status, user.header("x-sightline-worker")), (StatusCode::OK, None));
    let admin = status(Method::POST, chat, "admin").await;
    assert_eq!((admin.status, admin.header("x-sightline-worker")), (StatusCode::OK, Some("w0")));
    for path in ["/metrics", "/admin/workers", "/v1/explain/x"] {
        assert_eq!(status(Method::GET, path, "user").await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(status(Method::GET, "/metrics", "admin").await.status, StatusCode::OK);
    // The key is for this hop: no engine sees it.
    assert!(rig.engine.seen().iter().all(|(_, request)| !request.headers.contains_key("authorization")));

    let admin = rig.frontend.admin_address().unwrap();
    let operators = ports::engine::Endpoint::parse(&format!("http://{admin}")).unwrap();
    let ask = async |path: &'static str| {
        let request = ports::engine::Request {
            method: Method::GET,
            path: path.parse().unwrap(),
            headers: http::HeaderMap::new(),
            body: Vec::new(),
        };
        ports::Engine::forward(&rig.client, &operators, request).await.unwrap().status
    };
    assert_eq!(ask("/metrics").await, StatusCode::OK);
    assert_eq!(ask("/v1/models").await, StatusCode::NOT_FOUND);
}
