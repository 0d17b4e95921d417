//! A frontend whose listeners speak TLS.

use adapter_http::{Authorities, EngineConfig, HttpEngine, TlsFiles};
use frontend::KeyConfig;
use http::{HeaderMap, Method, StatusCode};
use ports::Engine;
use ports::engine::{Endpoint, Request};
use test_certificates::Authority;

use crate::rig::{Rig, chat, config, reply};

#[tokio::test]
async fn both_listeners_speak_tls_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "authority");
    let files = authority.issue(&["localhost"]);
    let mut config = config();
    config.tls = Some(TlsFiles { certificate: files.certificate, key: files.key });
    config.admin_listen = Some("127.0.0.1:0".parse().unwrap());
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let authorities = Authorities::read(Some(&authority.file)).unwrap();
    let trusting = HttpEngine::new(EngineConfig { authorities, ..EngineConfig::default() });
    let ask = async |client: &HttpEngine, scheme: &str, port: u16, method: Method, path: &'static str| {
        let endpoint = Endpoint::parse(&format!("{scheme}://localhost:{port}")).unwrap();
        let body = if method == Method::POST { vec![chat("hi").into()] } else { Vec::new() };
        let request = Request { method, path: path.parse().unwrap(), headers: HeaderMap::new(), body };
        client.forward(&endpoint, request).await.map(|answer| answer.status).ok()
    };
    let clients = rig.frontend.address().port();
    let operators = rig.frontend.admin_address().unwrap().port();
    let asked = ask(&trusting, "https", clients, Method::POST, "/v1/chat/completions").await;
    assert_eq!(asked, Some(StatusCode::OK));
    assert_eq!(ask(&trusting, "https", operators, Method::GET, "/metrics").await, Some(StatusCode::OK));
    for port in [clients, operators] {
        assert_eq!(ask(&rig.client, "https", port, Method::GET, "/health/live").await, None, "untrusted");
        assert_eq!(ask(&rig.client, "http", port, Method::GET, "/health/live").await, None, "plain");
    }
}

#[tokio::test]
async fn an_open_operators_listener_asks_for_the_key_there_is() {
    let mut config = config();
    config.admin_listen = Some("0.0.0.0:0".parse().unwrap());
    let status = async |rig: &Rig, key: &str| {
        let port = rig.frontend.admin_address().unwrap().port();
        let endpoint = Endpoint::parse(&format!("http://127.0.0.1:{port}")).unwrap();
        let headers = HeaderMap::from_iter([("authorization".parse().unwrap(), key.parse().unwrap())]);
        let request =
            Request { method: Method::GET, path: "/metrics".parse().unwrap(), headers, body: Vec::new() };
        rig.client.forward(&endpoint, request).await.unwrap().status
    };
    let open = Rig::start_with(config.clone()).await;
    assert_eq!(status(&open, "none").await, StatusCode::OK);
    let key = |key: &str, operator| KeyConfig { key: key.to_owned(), tenant: "t".to_owned(), operator };
    config.keys = vec![key("user", false), key("admin", true)];
    let keyed = Rig::start_with(config).await;
    assert_eq!(status(&keyed, "Bearer user").await, StatusCode::NOT_FOUND);
    assert_eq!(status(&keyed, "Bearer admin").await, StatusCode::OK);
}
