//! Isolated tenants: nothing that one has in an engine is ever another's.

use std::collections::BTreeSet;

use frontend::{Config, KeyConfig, MediaMode, Tenancy};
use http::{Method, StatusCode};
use ports::media_source::memory::Resource;
use serde_json::{Value, json};

use crate::rig::{MODEL, Rig, Whole, config, png, reply, whole};

const CHAT: &str = "/v1/chat/completions";
const URL: &str = "http://origin.example/i.png";

/// A frontend that everybody can reach, with two tenants and an operator.
async fn rig() -> Rig {
    rig_with(|_| ()).await
}

async fn rig_with(amend: impl FnOnce(&mut Config)) -> Rig {
    let key = |tenant: &str, operator| KeyConfig {
        key: format!("key-{tenant}"),
        tenant: tenant.to_owned(),
        operator,
    };
    let mut config = config();
    config.listen = "0.0.0.0:0".parse().unwrap();
    config.keys = vec![key("north", false), key("south", false), key("staff", true)];
    config.tenancy = Tenancy::Isolated;
    amend(&mut config);
    let mut rig = Rig::start_with(config).await;
    rig.worker("w0", |_| reply(1, 0)).await;
    rig
}

async fn post(rig: &Rig, tenant: &str, path: &str, body: &Value) -> Whole {
    let bearer = format!("Bearer key-{tenant}");
    whole(rig.send(Method::POST, path, &[("authorization", &bearer)], &body.to_string()).await).await
}

/// Sends a request that succeeds, and returns it as the engine got it.
async fn sent(rig: &Rig, tenant: &str, path: &str, body: &Value) -> Value {
    let answer = post(rig, tenant, path, body).await;
    assert_eq!(answer.status, StatusCode::OK, "{:?}", answer.body);
    serde_json::from_slice(rig.bodies().last().unwrap()).unwrap()
}

fn images(parts: &Value) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": parts}]})
}

fn uuids(sent: &Value) -> Vec<String> {
    let parts = sent["messages"][0]["content"].as_array().unwrap();
    parts.iter().map(|part| part["uuid"].as_str().unwrap().to_owned()).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn salts_and_media_ids_are_of_the_tenant() {
    let rig = rig().await;
    let (bytes, base64) = png(56, 28);
    rig.media.put(URL, Resource { bytes: bytes.clone(), ..Resource::default() });
    let body = images(&json!([
        {"type": "image_url", "image_url": {"url": format!("data:image/png;base64,{base64}")}},
        {"type": "image_url", "image_url": {"url": URL}, "uuid": "mine"},
    ]));
    let mut salts = BTreeSet::new();
    let mut ids = BTreeSet::from([prompt::media_id(&bytes).as_str().to_owned(), "mine".to_owned()]);
    for tenant in ["north", "south"] {
        let first = sent(&rig, tenant, CHAT, &body).await;
        let again = sent(&rig, tenant, CHAT, &body).await;
        assert_eq!((&first["cache_salt"], uuids(&first)), (&again["cache_salt"], uuids(&again)));
        let [one, two] = uuids(&first).try_into().unwrap();
        assert_eq!(one, two, "one image is one item by whatever way it comes");
        assert!(ids.insert(one) && salts.insert(text(&first["cache_salt"])));
        // A salt of the client's own is one more, and not the engine's to see.
        let mut salted = body.clone();
        salted["cache_salt"] = json!("theirs");
        let own = sent(&rig, tenant, CHAT, &salted).await;
        assert!(salts.insert(text(&own["cache_salt"])) && own["cache_salt"] != "theirs");
    }
    // Nor can a tenant take another's salt by naming it.
    for salt in salts.clone() {
        let mut stolen = body.clone();
        stolen["cache_salt"] = json!(salt);
        let got = sent(&rig, "south", CHAT, &stolen).await;
        assert!(salts.insert(text(&got["cache_salt"])), "{got}");
    }
    let asked = rig.bodies().len();
    assert_eq!(
        (asked, rig.media.fetches().len()),
        (10, 10),
        "bytes without a lifetime are asked for each time"
    );
}

#[tokio::test]
async fn completions_are_salted_too() {
    let rig = rig().await;
    let body = json!({"model": MODEL, "prompt": [[1, 2, 3]], "cache_salt": "a"});
    let north = sent(&rig, "north", "/v1/completions", &body).await;
    let south = sent(&rig, "south", "/v1/completions", &body).await;
    assert_ne!(north["cache_salt"], south["cache_salt"]);
    assert_eq!((&north["prompt"], &south["prompt"]), (&body["prompt"], &body["prompt"]));
    let twice = r#"{"model":"tiny-vl","prompt":"a","cache_salt":"a","cache_salt":"b"}"#;
    let headers = [("authorization", "Bearer key-north")];
    let answer = whole(rig.send(Method::POST, "/v1/completions", &headers, twice).await).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "invalid_value"));
}

#[tokio::test]
async fn names_are_of_the_tenant() {
    let rig = rig().await;
    let (bytes, _) = png(56, 28);
    rig.media.put(URL, Resource { bytes, ..Resource::default() });
    let given = images(&json!([{"type": "image_url", "image_url": {"url": URL}, "uuid": "cat"}]));
    let named = images(&json!([{"type": "image_url", "image_url": null, "uuid": "cat"}]));
    let id = uuids(&sent(&rig, "north", CHAT, &given).await);
    assert_eq!(uuids(&sent(&rig, "north", CHAT, &named).await), id);
    let other = post(&rig, "south", CHAT, &named).await;
    assert_eq!((other.status, other.code().as_str()), (StatusCode::BAD_REQUEST, "unknown_media_uuid"));
    // What the router does not read keeps its name, but not one that another tenant can have.
    let opaque = images(&json!([{"type": "image_embeds", "image_embeds": "AAAA", "uuid": "cat"}]));
    let north = uuids(&sent(&rig, "north", CHAT, &opaque).await);
    let south = uuids(&sent(&rig, "south", CHAT, &opaque).await);
    assert!(north != south && north != id && !north.contains(&"cat".to_owned()), "{north:?} {south:?}");
}

/// A frontend as above that leaves images behind URLs to the engines.
async fn passing_rig() -> Rig {
    let rig = rig_with(|config| {
        config.media.mode = MediaMode::Passthrough;
        config.media.immutable_urls = vec![FIXED.to_owned()];
    })
    .await;
    let (bytes, _) = png(56, 28);
    for url in [URL, FIXED] {
        rig.media.put(url, Resource { bytes: bytes.clone(), ..Resource::default() });
    }
    rig
}

/// A URL of which the operator promises that what is behind it never changes.
const FIXED: &str = "http://origin.example/fixed.png";

#[tokio::test]
async fn where_engines_fetch_names_and_salts_are_of_the_tenant() {
    let rig = passing_rig().await;
    let (bytes, base64) = png(56, 28);
    let data = format!("data:image/png;base64,{base64}");
    let part = |url: &str| json!({"type": "image_url", "image_url": {"url": url}, "uuid": "cat"});
    let body = images(&json!([part(URL), part(FIXED), part(&data)]));
    let mut salts = BTreeSet::new();
    let mut ids = BTreeSet::from([prompt::media_id(&bytes).as_str().to_owned(), "cat".to_owned()]);
    // The names that the same images have where tenants are not kept apart.
    let mut shared = config();
    shared.media.mode = MediaMode::Passthrough;
    shared.media.immutable_urls = vec![FIXED.to_owned()];
    let mut open = Rig::start_with(shared).await;
    open.worker("w0", |_| reply(1, 0)).await;
    open.media.put(FIXED, Resource { bytes, ..Resource::default() });
    assert_eq!(open.chat(&images(&json!([part(FIXED)])).to_string()).await.status, StatusCode::OK);
    ids.extend(uuids(&serde_json::from_slice(&open.bodies()[0]).unwrap()));
    for tenant in ["north", "south"] {
        let first = sent(&rig, tenant, CHAT, &body).await;
        let again = sent(&rig, tenant, CHAT, &body).await;
        assert_eq!(first, again, "one request is one for its tenant");
        let parts = first["messages"][0]["content"].as_array().unwrap();
        let urls: Vec<_> = parts.iter().map(|part| part["image_url"]["url"].as_str().unwrap()).collect();
        assert_eq!(urls, [URL, FIXED, &data], "all go as they came");
        assert!(parts[0]["uuid"].is_null(), "the engine names what it fetches");
        for part in &parts[1..] {
            assert!(ids.insert(text(&part["uuid"])), "{part} names another's image");
        }
        assert!(salts.insert(text(&first["cache_salt"])), "{first}");
        // What is explained is what was sent.
        let explained = post(&rig, "staff", "/v1/explain", &body).await.json();
        let explained = explained["media"].as_array().unwrap().iter().map(|item| &item["media_id"]);
        assert!(explained.filter_map(Value::as_str).all(|id| !ids.contains(id)), "staff has its own names");
    }
}

#[tokio::test]
async fn where_engines_fetch_one_tenants_names_tell_another_nothing() {
    let rig = passing_rig().await;
    let (_, base64) = png(56, 28);
    let data = format!("data:image/png;base64,{base64}");
    let given = |url: &str, uuid: &str| {
        images(&json!([{"type": "image_url", "image_url": {"url": url}, "uuid": uuid}]))
    };
    let named = |uuid: &str| images(&json!([{"type": "image_url", "image_url": null, "uuid": uuid}]));
    let id = uuids(&sent(&rig, "north", CHAT, &given(&data, "cat")).await);
    for url in [URL, FIXED] {
        sent(&rig, "north", CHAT, &given(url, "dog")).await;
    }
    assert_eq!(uuids(&sent(&rig, "north", CHAT, &named("cat")).await), id);
    let (reached, asked) = (rig.bodies().len(), rig.media.fetches().len());
    // Whether another tenant has used a name, for bytes or for a URL, makes no difference; nor does naming the id itself.
    let mut told = BTreeSet::new();
    for uuid in ["never", "cat", "dog", id[0].as_str()] {
        let answer = post(&rig, "south", CHAT, &named(uuid)).await;
        assert_eq!((answer.status, answer.code().as_str()), (StatusCode::BAD_REQUEST, "unknown_media_uuid"));
        told.insert(answer.body);
    }
    assert_eq!(told.len(), 1, "{told:?}");
    // Bytes that were not seen here are remembered for nobody.
    let own = post(&rig, "north", CHAT, &named("dog")).await;
    assert_eq!(own.code(), "unknown_media_uuid");
    assert_eq!((rig.bodies().len(), rig.media.fetches().len()), (reached, asked));
}

#[tokio::test]
async fn what_cannot_be_isolated_is_not_served() {
    let rig = rig().await;
    let seen = rig.bodies().len();
    for path in ["/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank"] {
        let answer = post(&rig, "staff", path, &json!({"model": MODEL, "input": "hi"})).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (StatusCode::FORBIDDEN, "not_isolated"),
            "{path}"
        );
    }
    assert_eq!(rig.bodies().len(), seen);
    let body = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    let tenant = post(&rig, "north", "/v1/explain", &body).await;
    assert_eq!((tenant.status, tenant.code().as_str()), (StatusCode::FORBIDDEN, "operator_required"));
    assert_eq!(post(&rig, "staff", "/v1/explain", &body).await.status, StatusCode::OK);
    for name in ["x-sightline-worker", "x-sightline-policy", "x-sightline-rank"] {
        let headers = [("authorization", "Bearer key-north"), (name, "kv")];
        let answer = whole(rig.send(Method::POST, CHAT, &headers, &body.to_string()).await).await;
        assert_eq!((answer.status, answer.code().as_str()), (StatusCode::FORBIDDEN, "operator_required"));
    }
}

#[tokio::test]
async fn isolation_without_keys_is_refused() {
    let mut config = config();
    config.tenancy = Tenancy::Isolated;
    let refused = Rig::try_start(config).await.err().unwrap();
    assert!(refused.to_string().contains("needs keys"), "{refused}");
}
