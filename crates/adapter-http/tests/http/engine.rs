//! The engine client.

use std::sync::mpsc::channel;
use std::time::Duration;

use adapter_http::{EngineConfig, HttpEngine};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::BodyExt;
use ports::Engine;
use ports::engine::{Endpoint, Error, Request};

use crate::server::{Peer, Server};

const SOON: Duration = Duration::from_secs(5);

fn endpoint(server: &Server) -> Endpoint {
    Endpoint::parse(&format!("http://{}", server.address)).unwrap()
}

fn post(chunks: &[&str]) -> Request {
    Request {
        method: Method::POST,
        path: "/v1/completions".parse().unwrap(),
        headers: HeaderMap::new(),
        body: chunks.iter().map(|it| Bytes::copy_from_slice(it.as_bytes())).collect(),
    }
}

fn client() -> HttpEngine {
    HttpEngine::new(EngineConfig::default())
}

fn quick() -> HttpEngine {
    let short = Duration::from_millis(100);
    HttpEngine::new(EngineConfig { connect: short, head: short, idle: short, ..EngineConfig::default() })
}

fn echo(mut peer: Peer) {
    while let Some(seen) = peer.request() {
        let text = String::from_utf8(seen.body).unwrap();
        peer.send(&format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()));
    }
}

#[tokio::test]
async fn chunks_are_sent_as_one_body_and_the_connection_is_kept() {
    let server = Server::start(echo);
    let client = client();
    for _ in 0..3 {
        let response = client.forward(&endpoint(&server), post(&["ab", "", "cde"])).await.unwrap();
        assert_eq!(response.body.collect().await.unwrap().to_bytes(), "abcde");
    }
    assert_eq!(server.accepted(), 1);
}

#[tokio::test]
async fn frames_pass_as_they_come() {
    let (go, gate) = channel::<()>();
    let gate = std::sync::Arc::new(parking_lot::Mutex::new(gate));
    let server = Server::start(move |mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
        for chunk in ["3\r\none\r\n", "3\r\ntwo\r\n", "0\r\n\r\n"] {
            peer.send(chunk);
            gate.lock().recv_timeout(SOON).ok();
        }
    });
    let client = client();
    let mut body = client.forward(&endpoint(&server), post(&[])).await.unwrap().body;
    for expected in ["one", "two"] {
        let frame = tokio::time::timeout(SOON, body.frame()).await.unwrap().unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), expected);
        go.send(()).unwrap();
    }
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn dropping_the_body_closes_the_connection() {
    let (closed, seen) = channel();
    let server = Server::start(move |mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nx");
        closed.send(peer.closed()).unwrap();
    });
    let response = client().forward(&endpoint(&server), post(&[])).await.unwrap();
    drop(response);
    assert!(seen.recv_timeout(SOON).unwrap());
}

#[tokio::test]
async fn dropping_the_call_closes_the_connection() {
    let (arrived, has_arrived) = channel();
    let (closed, seen) = channel();
    let server = Server::start(move |mut peer| {
        peer.request();
        arrived.send(()).unwrap();
        closed.send(peer.closed()).unwrap();
    });
    let (client, endpoint) = (client(), endpoint(&server));
    tokio::select! {
        _ = client.forward(&endpoint, post(&["x"])) => panic!("no answer was sent"),
        arrived = tokio::task::spawn_blocking(move || has_arrived.recv_timeout(SOON)) => arrived.unwrap().unwrap(),
    }
    assert!(seen.recv_timeout(SOON).unwrap());
}

#[tokio::test]
async fn a_connection_that_the_engine_closed_is_replaced() {
    let server = Server::start(|mut peer| {
        // Answers one request, promises to keep the connection, and closes it.
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    });
    let client = client();
    for _ in 0..20 {
        let response = client.forward(&endpoint(&server), post(&["x"])).await.unwrap();
        assert_eq!(response.body.collect().await.unwrap().to_bytes(), "ok");
    }
    assert_eq!(server.accepted(), 20);
}

#[tokio::test]
async fn failures_are_told_apart() {
    let gone = Endpoint::parse("http://127.0.0.1:1").unwrap();
    let error = client().forward(&gone, post(&[])).await.unwrap_err();
    assert!(error.refused() && error.unsent(), "{error}");

    let silent = Server::start(|mut peer| {
        peer.request();
        peer.closed();
    });
    let error = quick().forward(&endpoint(&silent), post(&[])).await.unwrap_err();
    assert!(matches!(error, Error::HeadTimeout { .. }), "{error}");

    let stalled = Server::start(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx");
        peer.closed();
    });
    let body = quick().forward(&endpoint(&stalled), post(&[])).await.unwrap().body;
    assert!(matches!(body.collect().await.unwrap_err(), Error::Idle { .. }));

    let cut = Server::start(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx");
    });
    let body = client().forward(&endpoint(&cut), post(&[])).await.unwrap().body;
    assert!(matches!(body.collect().await.unwrap_err(), Error::Broken { .. }));

    let rude = Server::start(|mut peer| {
        peer.request();
    });
    let error = client().forward(&endpoint(&rude), post(&[])).await.unwrap_err();
    assert!(matches!(error, Error::Broken { .. }), "{error}");
}

#[tokio::test]
async fn headers_of_one_hop_do_not_pass() {
    let (seen, request) = channel();
    let server = Server::start(move |mut peer| {
        seen.send(peer.request().unwrap()).unwrap();
        peer.send(
            "HTTP/1.1 200 OK\r\nconnection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\nx-kept: 1\r\ncontent-length: 0\r\n\r\n",
        );
    });
    let mut request_out = post(&["{}"]);
    for (name, value) in [("connection", "x-secret"), ("x-secret", "1"), ("te", "trailers"), ("x-kept", "1")]
    {
        request_out.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    request_out.headers.insert("content-length", HeaderValue::from_static("999"));
    let response = client().forward(&endpoint(&server), request_out).await.unwrap();
    let seen = request.recv_timeout(SOON).unwrap();
    assert_eq!(seen.line, "POST /v1/completions HTTP/1.1");
    assert_eq!((seen.header("content-length"), seen.header("x-kept")), (Some("2"), Some("1")));
    assert_eq!(seen.header("host"), Some(server.address.to_string().as_str()));
    assert_eq!((seen.header("x-secret"), seen.header("te")), (None, None));
    assert!(response.headers.contains_key("x-kept"));
    for gone in ["connection", "x-hop", "keep-alive"] {
        assert!(!response.headers.contains_key(gone), "{gone}");
    }
}

#[tokio::test]
async fn an_engine_is_asked_about_itself() {
    let server = Server::start(|mut peer| {
        while let Some(seen) = peer.request() {
            let (status, text) = match seen.line.as_str() {
                "GET /health HTTP/1.1" => ("200 OK", ""),
                "GET /metrics HTTP/1.1" => ("200 OK", "process_start_time_seconds 12.5\n"),
                "GET /v1/models HTTP/1.1" => ("200 OK", r#"{"data":[{"id":"m"}]}"#),
                _ => ("404 Not Found", ""),
            };
            peer.send(&format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len()));
        }
    });
    let (client, endpoint) = (client(), endpoint(&server));
    client.health(&endpoint, SOON).await.unwrap();
    assert_eq!(client.status(&endpoint, SOON).await.unwrap().started_ms, Some(12_500));
    assert_eq!(client.models(&endpoint, SOON).await.unwrap()[0].id, "m");
    let elsewhere = Endpoint::parse(&format!("{endpoint}/elsewhere")).unwrap();
    assert!(matches!(client.health(&elsewhere, SOON).await, Err(Error::Status { status: 404, .. })));
}
