//! What may be put into a media directory, and by whom.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use adapter_http::{EngineConfig, HttpEngine};
use agent::{Agent, Config};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use membership::card::MediaDir;
use ports::Engine;
use ports::engine::{Endpoint, Request};
use tokio::time::timeout;

use crate::publisher::{Layout, Publisher};
use crate::town::{PATIENCE, Town};

/// Starts an agent with a media directory, and reads on its card where that is.
async fn start(town: &Town, publisher: &Publisher, dir: &Path) -> (Agent, MediaDir) {
    let config = Config {
        media_dir: Some(dir.to_owned()),
        media_dir_bytes_max: 100,
        media_file_bytes_max: 80,
        ..town.config(publisher)
    };
    let agent = town.agent(config);
    let told = town.ready_card().await.media_dir;
    (agent, told.unwrap())
}

async fn ask(told: &MediaDir, method: Method, path: &str, (key, body): (&str, &[u8])) -> StatusCode {
    let bearer = HeaderValue::try_from(format!("Bearer {key}")).unwrap();
    let request = Request {
        method,
        path: path.parse().unwrap(),
        headers: HeaderMap::from_iter([(header::AUTHORIZATION, bearer)]),
        body: vec![Bytes::copy_from_slice(body)],
    };
    let client = HttpEngine::new(EngineConfig::default());
    let endpoint = Endpoint::parse(&told.endpoint).unwrap();
    timeout(PATIENCE, client.forward(&endpoint, request)).await.unwrap().unwrap().status
}

fn names(dir: &Path) -> Vec<String> {
    let names =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != ".lock").collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_bytes_that_their_id_names_are_kept() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("media");
    let (town, publisher) = (Town::new(), Publisher::bound(Layout::WithTopic).await);
    let (agent, told) = start(&town, &publisher, &dir).await;
    assert_eq!(Path::new(&told.path), std::fs::canonicalize(&dir).unwrap());
    let key = told.key.as_str().to_owned();
    let (one, two) = (&[1_u8; 60][..], &[2_u8; 60][..]);
    let path = |bytes: &[u8]| format!("/media/{}", prompt::media_id(bytes));

    for (method, path, presented, body, status) in [
        (Method::PUT, path(one), "", one, StatusCode::UNAUTHORIZED),
        (Method::PUT, path(one), "wrong", one, StatusCode::UNAUTHORIZED),
        (Method::PUT, path(one), key.as_str(), two, StatusCode::UNPROCESSABLE_ENTITY),
        (Method::PUT, path(one), key.as_str(), &[1; 81][..], StatusCode::PAYLOAD_TOO_LARGE),
        (Method::PUT, "/media/../escape".to_owned(), key.as_str(), one, StatusCode::NOT_FOUND),
        (Method::PUT, format!("/media/{}", "A".repeat(64)), key.as_str(), one, StatusCode::NOT_FOUND),
        (Method::PUT, format!("{}/x", path(one)), key.as_str(), one, StatusCode::NOT_FOUND),
        (Method::POST, path(one), key.as_str(), &[], StatusCode::NOT_FOUND),
        (Method::GET, path(one), key.as_str(), &[], StatusCode::METHOD_NOT_ALLOWED),
    ] {
        assert_eq!(ask(&told, method.clone(), &path, (presented, body)).await, status, "{method} {path}");
        assert_eq!(names(&dir), Vec::<String>::new(), "{method} {path} left something");
    }
    assert_eq!(ask(&told, Method::PUT, &path(one), (&key, one)).await, StatusCode::CREATED);
    assert_eq!(std::fs::read(dir.join(prompt::media_id(one).as_str())).unwrap(), one);
    assert_eq!(ask(&told, Method::POST, &path(one), (&key, &[])).await, StatusCode::NO_CONTENT);
    // The first is promised, so that there is no room for the second.
    assert_eq!(ask(&told, Method::PUT, &path(two), (&key, two)).await, StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(ask(&told, Method::GET, &path(one), (&key, &[])).await, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(names(&dir), [prompt::media_id(one).as_str()]);
    agent.stop(Duration::ZERO).await;
    assert_eq!(names(&dir), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_not_shared() {
    let temp = tempfile::tempdir().unwrap();
    let (town, publisher) = (Town::new(), Publisher::bound(Layout::WithTopic).await);
    let (agent, _) = start(&town, &publisher, temp.path()).await;
    let second = Config { media_dir: Some(temp.path().to_owned()), ..town.config(&publisher) };
    let refused = Agent::start(second, town.ports()).unwrap_err();
    assert!(format!("{refused:#}").contains("another agent uses the directory"), "{refused:#}");
    agent.stop(Duration::ZERO).await;
}
