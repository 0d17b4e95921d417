//! The media cache against an origin in memory.
#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::sync::Arc;
use std::time::Duration;

use actors::dim_cache::{Allowance, Config, Error, Lost};
use actors::media_resolver::{self, Asker, Elsewhere, Resolved};
use actors::{ByteBudget, DimCache, MediaResolver, Preprocessor};
use bytes::Bytes;
use identity::ModelName;
use ports::TokioClock;
use ports::media_source::memory::{MemorySource, Resource};
use ports::media_source::{self, Freshness, NoRoom, Room as _, Validator};
use prompt::{ChatRequest, DataUri};

const URL: &str = "http://origin.example/i.png";

/// A PNG header of the given width, enough to be sized.
fn png(width: u32) -> Bytes {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(7_u32.to_be_bytes());
    bytes.extend(b"\x08\x02\0\0\0\0\0\0\0\0\0\0\0IDAT\0\0\0\0\0\0\0\0IEND\0\0\0\0");
    Bytes::from(bytes)
}

fn resource(width: u32, etag: Option<&str>, fresh_s: u64) -> Resource {
    Resource {
        bytes: png(width),
        validator: Validator { etag: etag.map(str::to_owned), last_modified: None },
        freshness: Freshness { fresh_for: Duration::from_secs(fresh_s), no_store: false },
    }
}

fn cache(source: &MemorySource) -> DimCache {
    cache_with(Config::default(), source)
}

fn cache_with(config: Config, source: &MemorySource) -> DimCache {
    let clock = Arc::new(TokioClock::from_wall(1_800_000_000_000));
    let pool = Preprocessor::new(actors::preprocessor::Config::default());
    DimCache::new(config, Arc::new(source.clone()), clock, pool)
}

#[tokio::test]
async fn of_many_that_ask_at_once_one_fetches() {
    let source = MemorySource::default();
    // No lifetime at all: whoever waited may still use what came while it waited.
    source.put(URL, resource(5, None, 0));
    let cache = cache(&source);
    let all =
        futures::future::join_all((0..16).map(async |_| cache.fetch(URL, &Allowance::default()).await)).await;
    let ids: Vec<_> = all.into_iter().map(|item| item.unwrap().known.id).collect();
    assert!(ids.iter().all(|id| *id == prompt::media_id(&png(5))));
    assert_eq!(source.fetches().len(), 1);
}

#[tokio::test]
async fn whoever_has_no_room_leaves_the_fetch_to_who_has() {
    let source = MemorySource::default();
    source.put(URL, resource(5, None, 0));
    source.hold(URL);
    let cache = cache(&source);
    let nothing = ByteBudget::new("limit", 0);
    let (small, large) =
        (Allowance::new(&nothing, ByteBudget::new("all", 1 << 20).tab()), Allowance::default());
    let released = async {
        while source.fetches().is_empty() {
            tokio::task::yield_now().await;
        }
        source.release(URL);
    };
    let (refused, given, ()) = tokio::join!(cache.fetch(URL, &small), cache.fetch(URL, &large), released);
    let too_much = NoRoom::TooMuch { limit: "limit", bytes_max: 0 };
    assert_eq!(refused, Err(Error::Source(too_much.clone().into())));
    assert_eq!(given.unwrap().known.id, prompt::media_id(&png(5)));
    assert_eq!(source.fetches().len(), 2);
    // Nor is it given what is here already.
    source.put(URL, resource(5, None, 60));
    assert!(cache.fetch(URL, &large).await.is_ok());
    assert_eq!(cache.fetch(URL, &small).await, Err(Error::Source(too_much.into())));
    assert_eq!(source.fetches().len(), 3);
}

#[tokio::test]
async fn what_is_found_for_nobody_is_not_held() {
    let source = MemorySource::default();
    let owner = Arc::new(png(5));
    let bytes = Bytes::from_owner(SharedBytes(Arc::clone(&owner)));
    source.put(URL, Resource { bytes, ..Resource::default() });
    source.hold(URL);
    let cache = cache_with(Config { stored_bytes_max: 0, ..Config::default() }, &source);
    let config = media_resolver::Config { budget: Duration::ZERO, ..media_resolver::Config::default() };
    let resolver = MediaResolver::new(config, cache.clone());
    let (budget, model) = (ByteBudget::new("all", 1 << 20), ModelName::new("m"));
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{URL}"}}}}]}}]}}"#
    );
    let request = ChatRequest::parse(&Bytes::from(body)).unwrap();
    let late = {
        let allowance = Allowance::new(&budget, budget.tab());
        let asker = Asker { tenant: "north", model: &model, bytes: true, allowance: &allowance };
        resolver.look_up(&request, asker).await.unwrap().1
    };
    drop(late.unwrap());
    source.release(URL);
    let done = async {
        while source.read_bytes() == 0 {
            tokio::task::yield_now().await;
        }
        source.remove(URL);
        while Arc::strong_count(&owner) > 1 || budget.tab().share().grow(1 << 20).is_err() {
            drop(cache.stored(&prompt::media_id(&png(5))).await);
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), done).await.unwrap();
}

/// Bytes that tell by their owners' count whether anybody has them.
struct SharedBytes(Arc<Bytes>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[tokio::test(start_paused = true)]
async fn facts_are_used_while_fresh_and_confirmed_after() {
    let source = MemorySource::default();
    source.put(URL, resource(5, Some("\"a\""), 60));
    let cache = cache(&source);
    let first = cache.fetch(URL, &Allowance::default()).await.unwrap();
    assert!(first.fetched);
    assert_eq!((&first.stored.bytes, &*first.stored.media_type), (&png(5), "image/png"));
    assert_eq!(first.known.size.map(|size| (size.width, size.height)), Some((5, 7)));
    assert!(!cache.fetch(URL, &Allowance::default()).await.unwrap().fetched);
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(cache.fetch(URL, &Allowance::default()).await.unwrap().fetched);
    assert!(!cache.fetch(URL, &Allowance::default()).await.unwrap().fetched);
    let fetches = source.fetches();
    assert_eq!(fetches.len(), 2);
    assert_eq!(fetches[1].known.as_ref().unwrap().etag.as_deref(), Some("\"a\""));
}

#[tokio::test(start_paused = true)]
async fn overwritten_bytes_get_another_identity() {
    for (before, after, conditional) in
        [(Some("\"a\""), Some("\"b\""), true), (Some("W/\"a\""), Some("W/\"a\""), false), (None, None, false)]
    {
        let source = MemorySource::default();
        let cache = cache(&source);
        source.put(URL, resource(5, before, 0));
        let old = cache.fetch(URL, &Allowance::default()).await.unwrap();
        source.put(URL, resource(6, after, 0));
        tokio::time::advance(Duration::from_millis(1)).await;
        let new = cache.fetch(URL, &Allowance::default()).await.unwrap();
        assert_ne!(old.known.id, new.known.id, "{before:?}");
        assert_eq!(new.known.id, prompt::media_id(&png(6)));
        assert_eq!(source.fetches()[1].known.is_some(), conditional, "{before:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_remembered_for_a_while() {
    let source = MemorySource::default();
    let cache = cache(&source);
    let missing = Err(Error::Source(media_source::Error::Status { status: 404 }));
    assert_eq!(cache.fetch(URL, &Allowance::default()).await, missing);
    source.put(URL, resource(5, None, 60));
    assert_eq!(cache.fetch(URL, &Allowance::default()).await, missing);
    assert_eq!(source.fetches().len(), 1);
    tokio::time::advance(Duration::from_secs(6)).await;
    assert!(cache.fetch(URL, &Allowance::default()).await.is_ok());

    let page = Resource { bytes: Bytes::from_static(b"<html>"), ..Resource::default() };
    source.put("http://origin.example/page", page);
    for _ in 0..2 {
        let outcome = cache.fetch("http://origin.example/page", &Allowance::default()).await;
        assert!(matches!(outcome, Err(Error::NotAnImage { .. })), "{outcome:?}");
    }
    assert_eq!(source.fetches().len(), 3);
}

#[tokio::test]
async fn another_signature_is_confirmed_by_the_origin() {
    let source = MemorySource::default();
    let cache = cache(&source);
    let signed = |signature: &str| format!("{URL}?X-Amz-Signature={signature}");
    for signature in ["one", "two"] {
        source.put(&signed(signature), resource(5, Some("\"a\""), 60));
    }
    assert!(cache.fetch(&signed("one"), &Allowance::default()).await.unwrap().fetched);
    assert!(!cache.fetch(&signed("one"), &Allowance::default()).await.unwrap().fetched);
    assert!(cache.fetch(&signed("two"), &Allowance::default()).await.unwrap().fetched);
    assert!(source.fetches()[1].known.is_some());
    // Without a valid signature the origin's answer counts, not what others were given.
    assert!(cache.fetch(&signed("forged"), &Allowance::default()).await.is_err());
}

#[tokio::test]
async fn urls_that_collide_in_xxh3_have_facts_of_their_own() {
    // How they were made: `media_ids.rs` of the prompt crate.
    let url = |early: &str, late: &str| {
        let mut url = format!("http://images.test/{}", "x".repeat(281));
        url.replace_range(64..72, early);
        url.replace_range(192..200, late);
        url
    };
    let (one, other) = (url("hEawBeMU", "XfT9bj8Z"), url("s2ihkz-~", "MyLH9UX1"));
    assert_eq!(identity::MediaKey::of(&one), identity::MediaKey::of(&other));
    let source = MemorySource::default();
    source.put(&one, resource(5, None, 60));
    source.put(&other, resource(6, None, 60));
    let cache = cache(&source);
    for _ in 0..2 {
        assert_eq!(
            cache.fetch(&one, &Allowance::default()).await.unwrap().known.id,
            prompt::media_id(&png(5))
        );
        assert_eq!(
            cache.fetch(&other, &Allowance::default()).await.unwrap().known.id,
            prompt::media_id(&png(6))
        );
    }
    assert_eq!(source.fetches().len(), 2);
}

#[tokio::test]
async fn names_belong_to_their_tenant() {
    let source = MemorySource::default();
    source.put(URL, resource(5, None, 60));
    let cache = cache(&source);
    let known = cache.fetch(URL, &Allowance::default()).await.unwrap().known;
    cache.name("a", "x", &known).await;
    assert_eq!(cache.named("a", "x").await, Some(known));
    assert_eq!(cache.named("b", "x").await, None);
}

#[tokio::test(start_paused = true)]
async fn bytes_without_room_are_had_again_only_if_they_are_the_same() {
    let source = MemorySource::default();
    // Nothing fits into the store.
    let cache = cache_with(Config { stored_bytes_max: 0, ..Config::default() }, &source);
    source.put(URL, resource(5, None, 60));
    let id = cache.fetch(URL, &Allowance::default()).await.unwrap().known.id;
    assert_eq!(cache.stored(&id).await, None);
    assert_eq!(cache.recover(&id, &Allowance::default()).await.unwrap().bytes, png(5));
    assert_eq!(source.fetches().len(), 2);
    source.put(URL, resource(6, None, 60));
    assert_eq!(cache.recover(&id, &Allowance::default()).await, Err(Lost::Changed));
    // The id that is asked for stays gone, and the URL's new bytes have their own.
    let new = cache.fetch(URL, &Allowance::default()).await.unwrap().known.id;
    assert_eq!(new, prompt::media_id(&png(6)));
    assert_eq!(cache.recover(&new, &Allowance::default()).await.unwrap().bytes, png(6));
    assert_eq!(
        cache.recover(&prompt::media_id(b"never seen"), &Allowance::default()).await,
        Err(Lost::Unknown)
    );
    source.remove(URL);
    assert!(matches!(cache.recover(&new, &Allowance::default()).await, Err(Lost::Origin(_))));
}

/// A request for two images, of which the second comes with these members.
fn request(second: &str) -> ChatRequest {
    let data = String::from_utf8(DataUri::spell("image/png", &png(5)).to_vec()).unwrap();
    let first = format!(r#""image_url":{{"url":"{data}"}}"#);
    let second = second.replace("DATA", &first);
    let body = format!(r#"{{"messages":[{{"role":"user","content":[{{{first}}},{{{second}}}]}}]}}"#);
    ChatRequest::parse(&Bytes::from(body)).unwrap()
}

/// A resolver to which a client has told what it calls an image.
async fn told(keep: Duration) -> MediaResolver {
    let cache = cache_with(Config { keep, ..Config::default() }, &MemorySource::default());
    let resolver = MediaResolver::new(media_resolver::Config::default(), cache);
    let given = request(r#"DATA,"uuid":"cat""#);
    let resolved = Resolved::join(&given, resolver.read_body(&given).unwrap(), Elsewhere::default());
    resolver.remember(&given, &resolved, "north").await;
    resolver
}

#[tokio::test]
async fn a_name_that_was_forgotten_is_told_by_its_index_and_what_to_do() {
    let (named, model) =
        (request(r#""type":"image_url","image_url":null,"uuid":"cat""#), ModelName::new("m"));
    let ask = |resolver: MediaResolver, tenant: &'static str| {
        let (named, model) = (named.clone(), model.clone());
        async move {
            let asker = Asker { tenant, model: &model, bytes: true, allowance: &Allowance::default() };
            resolver.look_up(&named, asker).await.map(drop)
        }
    };
    let resolver = told(Duration::from_secs(3600)).await;
    assert_eq!(ask(resolver.clone(), "north").await, Ok(()));
    let never_known = ask(resolver, "south").await.unwrap_err();
    let resolver = told(Duration::from_millis(20)).await;
    let forgotten = async {
        loop {
            if let Err(error) = ask(resolver.clone(), "north").await {
                return error;
            }
        }
    };
    let forgotten = tokio::time::timeout(Duration::from_secs(10), forgotten).await.unwrap();
    assert_eq!(forgotten, never_known);
    let expected = "media item 1: nothing is known of its uuid, or no longer: send its data along with it";
    assert_eq!(forgotten.to_string(), expected);
}
