//! Requests that are meant to do harm.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use adapter_http::{HttpMediaSource, MediaConfig};
use frontend::{Config, MediaMode};
use http::{Method, StatusCode};
use media_probe::AddressPolicy;
use serde_json::json;

use crate::rig::{MODEL, Rig, SOON, chat, config, reply, whole};

fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter(|line| !line.starts_with("# "))
}

/// Every spelling of an address that must not be reached, with a canary listening there.
fn forbidden(port: u16) -> Vec<String> {
    let hosts = lines(include_str!("../../../../tests/fixtures/ssrf/hosts.txt"));
    let urls = lines(include_str!("../../../../tests/fixtures/ssrf/urls.txt"));
    let urls = urls.map(|url| url.replace("PORT", &port.to_string()));
    hosts.map(|host| format!("http://{host}:{port}/i.png")).chain(urls).collect()
}

#[tokio::test]
async fn no_spelling_of_an_inner_address_passes_any_path() {
    check_forbidden(config()).await;
}

#[tokio::test]
async fn no_spelling_passes_where_engines_fetch() {
    let mut config = config();
    config.media.mode = MediaMode::Passthrough;
    check_forbidden(config).await;
}

#[tokio::test]
async fn no_spelling_passes_where_hosts_are_probed_or_left_alone() {
    for treatment in ["probe", "never"] {
        let mut config = config();
        config.media.hosts.insert("*".to_owned(), treatment.to_owned());
        check_forbidden(config).await;
    }
}

async fn check_forbidden(config: Config) {
    let canary = TcpListener::bind("0.0.0.0:0").unwrap();
    canary.set_nonblocking(true).unwrap();
    let source = Arc::new(HttpMediaSource::new(MediaConfig::new(AddressPolicy::default())));
    let mut rig = Rig::start_on(config, source).await.unwrap();
    rig.worker("w0", |_| reply(1, 0)).await;
    let urls = forbidden(canary.local_addr().unwrap().port());
    assert!(urls.len() >= 80, "{}", urls.len());
    for url in &urls {
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": [
            {"type": "text", "text": "a"},
            {"type": "image_url", "image_url": {"url": url}},
        ]}]});
        for path in ["/v1/chat/completions", "/v1/explain"] {
            let answer = rig.post(path, &body.to_string()).await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path} {url}: {:?}", answer.body);
            let error = answer.json()["error"].clone();
            assert!(error["message"].as_str().unwrap().contains("media item 0"), "{url}: {error}");
        }
        let foreign = json!({"model": MODEL, "input": [{"type": "input_image", "image_url": url}]});
        let answer = rig.post("/v1/responses", &foreign.to_string()).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "/v1/responses {url}: {:?}", answer.body);
        assert!(canary.accept().is_err(), "{url} was reached");
    }
    assert!(rig.bodies().is_empty(), "an engine was handed a refused url");
}

/// Sends bytes as they are and reads what comes until the connection ends.
fn raw(address: std::net::SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_second_request_is_smuggled_to_an_engine() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let body = chat("smuggled");
    // Whoever takes it for a request of its own answers it here, and closes.
    let inner = "GET /health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n{inner}", body.len());
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\n";
    let cases = [
        format!("{head}content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding: xchunked\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding: chunked, identity\r\n\r\n{chunked}"),
        format!("{head}transfer-encoding : chunked\r\n\r\n{chunked}"),
        format!("{head}content-length: {}\r\ncontent-length: 3\r\n\r\n{body}{inner}", body.len()),
        format!("{head}content-length: +{}\r\n\r\n{body}{inner}", body.len()),
        format!("{head}content-length: {}\r\nx: a\r\n b: c\r\n\r\n{body}{inner}", body.len()),
        format!(
            "{head}content-length: {}\r\nconnection: close\r\nx-request-id: a\nx-data-parallel-rank: 7\r\n\r\n{body}",
            body.len()
        ),
    ];
    let address = rig.frontend.address();
    for case in cases {
        let bytes = case.clone().into_bytes();
        tokio::task::spawn_blocking(move || raw(address, &bytes)).await.unwrap();
        for (_, seen) in rig.engine.seen() {
            let path = seen.path.as_str();
            assert!(matches!(path, "/health" | "/v1/chat/completions"), "{path} by {case:?}");
            assert!(!seen.headers.contains_key("transfer-encoding"), "{case:?}");
            assert!(seen.headers.get_all("x-data-parallel-rank").iter().all(|rank| rank == "0"), "{case:?}");
        }
        assert!(rig.bodies().iter().all(|sent| *sent == body.as_bytes()), "{case:?}: {:?}", rig.bodies());
    }
    assert!(!rig.bodies().is_empty(), "nothing was served at all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_name_nothing_that_is_ours_to_say() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let body = chat("hi");
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\
         connection: close, x-data-parallel-rank, x-request-id, content-type\r\nx-data-parallel-rank: 9\r\n\
         x-request-id: mine\r\nx-sightline-session: s\r\ncookie: c\r\n\r\n{body}",
        body.len()
    );
    let address = rig.frontend.address();
    let answer = tokio::task::spawn_blocking(move || raw(address, request.as_bytes())).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("x-request-id: mine\r\n"), "{answer}");
    let seen = rig.engine.seen().into_iter().map(|(_, request)| request);
    let seen = seen.filter(|request| request.path != "/health").last().unwrap();
    let sent = |name: &str| seen.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    assert_eq!(sent("x-data-parallel-rank").as_deref(), Some("0"));
    assert_eq!(sent("x-request-id").as_deref(), Some("mine"));
    for name in ["connection", "cookie", "x-sightline-session"] {
        assert_eq!(sent(name), None, "{name}");
    }
    // Names that are no plain word are not taken up, into no header and no log.
    for odd in ["a b", "a\tb", &"x".repeat(129)] {
        let headers = [("x-request-id", odd)];
        let answer = whole(rig.send(Method::POST, "/v1/chat/completions", &headers, &chat("hi")).await).await;
        assert_ne!(answer.header("x-request-id"), Some(odd));
    }
}

#[tokio::test]
async fn an_image_of_too_many_pixels_is_refused_by_its_header() {
    let mut rig = Rig::start().await;
    rig.worker("w0", |_| reply(1, 0)).await;
    let (_, small) = crate::rig::png(28, 28);
    let (_, huge) = crate::rig::png(30_000, 30_000);
    let part = |data: &str| json!({"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{data}")}});
    let body =
        json!({"model": MODEL, "messages": [{"role": "user", "content": [part(&small), part(&huge)]}]});
    let answer = rig.chat(&body.to_string()).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "invalid_image"));
    let error = answer.json()["error"].clone();
    assert!(
        error["message"].as_str().unwrap().contains("media item 1: the image has 30000x30000"),
        "{error}"
    );
    assert_eq!(error["param"], "messages[0].content[1]");
    assert!(rig.bodies().is_empty());
}
