//! One image by every way it can come, to an engine that tells what it received: its identity is its bytes' own, however
//! the origin behaves and however the engine is handed it.

use frontend::HandOverConfig;
use serde_json::{Value, json};
use sightline::up::{Config, EngineSpec, Fleet};
use tempfile::TempDir;

use crate::images::Picture;
use crate::origin::{Origin, Resource};
use crate::up::DEADLINE;

const WAYS: [HandOverConfig; 3] = [HandOverConfig::Data, HandOverConfig::Url, HandOverConfig::File];
/// Long enough ago to prove something (a `Last-Modified` does once it is a minute old).
const LONG_AGO: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn picture(seed: u8) -> Vec<u8> {
    Picture { width: 56, height: 56, seed }.bmp()
}

/// A frontend, an agent, and an engine that tells what it received.
struct Town {
    fleet: Fleet,
    engine: engine_sim::Running,
    http: reqwest::Client,
    frontend: String,
    _dir: TempDir,
}

impl Town {
    async fn start(way: HandOverConfig) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let model_dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl").into();
        let engine = engine_sim::start(engine_sim::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            model_dir,
            speed: 0.0,
            kv_events: Some("tcp://127.0.0.1:0".to_owned()),
            kv_events_bind: true,
            kv_replay: Some("tcp://127.0.0.1:0".to_owned()),
            allowed_local_media_path: Some(dir.path().to_owned()),
            media_recorded_max: 64,
            ..engine_sim::Config::default()
        });
        let engine = engine.await.unwrap();
        let source = &engine.event_sources[0];
        let replay = source.replay_endpoint.clone();
        let spec = EngineSpec {
            url: format!("http://{}", engine.addr),
            kv_events: source.endpoint.clone(),
            replay,
            bind: false,
        };
        let config = Config {
            frontends: 1,
            port: 0,
            agent_port: 0,
            engine: vec![spec],
            model_dir: concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/models/tiny-vl").into(),
            media_allow_net: vec!["127.0.0.0/8".to_owned()],
            media_hand_over: way,
            media_dir: Some(dir.path().to_owned()),
            ..Config::default()
        };
        let fleet = Fleet::start(&config).await.unwrap();
        fleet.ready(DEADLINE).await.unwrap();
        let frontend = format!("http://{}", fleet.frontends()[0]);
        let http = reqwest::Client::builder().no_proxy().timeout(DEADLINE).build().unwrap();
        Self { fleet, engine, http, frontend, _dir: dir }
    }

    /// Sends a chat with an image, and returns what the engine received of it.
    async fn send(&self, url: &str) -> Value {
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        let body =
            json!({"model": "tiny-vl", "max_tokens": 1, "messages": [{"role": "user", "content": [part]}]});
        let before = self.received().await.len();
        let asked = self.http.post(format!("{}/v1/chat/completions", self.frontend)).json(&body).send().await;
        let answer = asked.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        let received = self.received().await;
        assert_eq!(received.len(), before + 1);
        received[before].clone()
    }

    async fn received(&self) -> Vec<Value> {
        let url = format!("http://{}/engine_sim/media", self.engine.addr);
        let received: Value = self.http.get(url).send().await.unwrap().json().await.unwrap();
        received["media"].as_array().unwrap().clone()
    }

    async fn stop(self) {
        self.fleet.stop().await;
        self.engine.stop().await;
    }
}

/// What an origin holds at first, and what afterwards, if it changes; and how its requests are answered by then.
struct Case {
    name: &'static str,
    first: Resource,
    second: Option<Vec<u8>>,
    queries: [&'static str; 2],
    answered: &'static [u16],
}

impl Case {
    fn new(name: &'static str, mut first: Resource, answered: &'static [u16]) -> Self {
        first.body = picture(1);
        Self { name, first, second: None, queries: ["", ""], answered }
    }
}

fn cases() -> Vec<Case> {
    let strong = || Resource { etag: Some("\"one\""), ..Resource::default() };
    let weak = || Resource { etag: Some("W/\"one\""), ..Resource::default() };
    let fresh = || Resource { cache_control: Some("max-age=60"), ..Resource::default() };
    let overwritten =
        |name, first, answered| Case { second: Some(picture(2)), ..Case::new(name, first, answered) };
    vec![
        Case::new("nothing", Resource::default(), &[200, 200]),
        Case::new("strong etag", strong(), &[200, 304]),
        Case::new("weak etag", weak(), &[200, 200]),
        Case::new("mtime-size etag", Resource { etag: Some("\"5f3759df-24fe\""), ..strong() }, &[200, 304]),
        Case::new(
            "old last-modified",
            Resource { last_modified: Some(LONG_AGO), ..fresh_not() },
            &[200, 304],
        ),
        Case::new("vary", Resource { vary: Some("Accept"), ..strong() }, &[200, 304]),
        Case::new("vary *", Resource { vary: Some("*"), ..fresh() }, &[200, 200]),
        Case::new("max-age", fresh(), &[200]),
        Case::new("no-store", Resource { cache_control: Some("no-store"), ..weak() }, &[200, 200]),
        Case::new("with ranges", Resource { ranges: true, ..strong() }, &[200, 304]),
        Case::new("single use, fresh", Resource { uses: Some(1), ..fresh() }, &[200]),
        Case {
            queries: ["?X-Amz-Signature=a&X-Amz-Date=1", "?X-Amz-Signature=b&X-Amz-Date=2"],
            ..Case::new(
                "signed anew, strong etag",
                Resource { cache_control: Some("max-age=60"), ..strong() },
                &[200, 304],
            )
        },
        Case {
            queries: ["?X-Amz-Signature=a", "?X-Amz-Signature=b"],
            ..Case::new("signed anew, no validator", fresh(), &[200, 200])
        },
        overwritten("overwritten, nothing", Resource::default(), &[200, 200]),
        overwritten("overwritten, weak etag stays", weak(), &[200, 200]),
        overwritten("overwritten, strong etag changes", strong(), &[200, 200]),
    ]
}

fn fresh_not() -> Resource {
    Resource { cache_control: Some("no-cache"), ..Resource::default() }
}

/// Sends every case's image twice, and notes a line per case: ids, requests to the origin, what the engine received.
async fn table(way: HandOverConfig) -> Vec<String> {
    let (town, origin) = (Town::start(way).await, Origin::start().await);
    let mut lines = Vec::new();
    for (index, case) in cases().into_iter().enumerate() {
        let path = format!("/{index}.bmp");
        origin.put(&path, case.first.clone());
        let first = town.send(&(origin.url(&path) + case.queries[0])).await;
        if let Some(body) = &case.second {
            let etag = if case.first.etag == Some("\"one\"") { Some("\"two\"") } else { case.first.etag };
            origin.put(&path, Resource { body: body.clone(), etag, ..case.first.clone() });
        }
        let second = town.send(&(origin.url(&path) + case.queries[1])).await;
        let (before, after) = (&case.first.body, case.second.as_ref().unwrap_or(&case.first.body));
        for (received, body) in [(&first, before), (&second, after)] {
            let id = prompt::media_id(body);
            assert_eq!(received["identity"], id.as_str(), "{way} {}", case.name);
            assert_eq!(received["media_id"], id.as_str(), "{way} {}: other bytes than the id's", case.name);
            assert_eq!((&received["given"], &received["by"]), (&json!(true), &json!(way.to_string())));
        }
        assert_eq!(origin.answered(&path), case.answered, "{way} {}", case.name);
        let ids = if first["identity"] == second["identity"] { "one id" } else { "two ids" };
        lines.push(format!("{way:<4} {:<34} {ids:<7} origin {:?}", case.name, origin.answered(&path)));
    }
    // A data URI of the same bytes is the same item, and asks nobody.
    let asked = origin.requests();
    let received = town.send(&Picture { width: 56, height: 56, seed: 1 }.data_uri()).await;
    assert_eq!(
        (&received["identity"], &received["by"]),
        (&json!(prompt::media_id(&picture(1)).as_str()), &json!("data"))
    );
    assert_eq!(origin.requests(), asked);
    town.stop().await;
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn one_image_is_one_identity_by_whatever_way_it_comes() {
    for way in WAYS {
        for line in table(way).await {
            println!("{line}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_with_one_etag_and_length_share_no_id() {
    let (town, origin) = (Town::start(HandOverConfig::Url).await, Origin::start().await);
    let put = |path: &str, seed| {
        let etag = Some("\"same\"");
        origin.put(path, Resource { body: picture(seed), etag, ..Resource::default() });
    };
    put("/a.bmp", 1);
    put("/b.bmp", 2);
    for (path, seed) in [("/a.bmp", 1), ("/b.bmp", 2), ("/a.bmp", 1), ("/b.bmp", 2)] {
        let received = town.send(&origin.url(path)).await;
        let id = prompt::media_id(&picture(seed));
        assert_eq!(
            (&received["identity"], &received["media_id"]),
            (&json!(id.as_str()), &json!(id.as_str()))
        );
    }
    assert_eq!((origin.answered("/a.bmp"), origin.answered("/b.bmp")), (vec![200, 304], vec![200, 304]));
    town.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_directory_is_empty_after_it() {
    let (town, origin) = (Town::start(HandOverConfig::File).await, Origin::start().await);
    origin.put("/a.bmp", Resource { body: picture(1), ..Resource::default() });
    let received = town.send(&origin.url("/a.bmp")).await;
    assert_eq!(received["by"], "file");
    let files = || std::fs::read_dir(town._dir.path().join("w0")).unwrap().count();
    assert_eq!(files(), 2, "the file and the lock");
    let dir = town._dir.path().join("w0");
    let Town { fleet, engine, _dir, .. } = town;
    fleet.stop().await;
    engine.stop().await;
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "the lock alone");
}
