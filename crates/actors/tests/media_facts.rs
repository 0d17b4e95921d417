//! What is known of images without their bytes: from headers, from other frontends, and from what engines tell.
#![expect(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actor_kit::Node;
use actors::dim_cache::Allowance;
use actors::header_cache::Error;
use actors::{
    DimCache, FactBoardArgs, FactBoardHandle, Gossip, HeaderCache, MediaListener, NameLearnerArgs,
    NameLearnerHandle, Preprocessor, Riddle, dim_cache, header_cache,
};
use bytes::Bytes;
use identity::{Holder, MediaId, ModelName, Rank, WorkerId};
use media_geometry::ImageSize;
use membership::MediaRun;
use ports::media_source::memory::{MemorySource, Resource};
use ports::media_source::{self, Freshness, Validator};
use ports::{Clock, InMemoryBus, TokioClock};
use prompt::{ChatRequest, MediaFact, Model, ModelFiles, ModelOptions, PrepareOptions, Prepared};

const URL: &str = "http://origin.example/i.png";

/// A PNG header of the given width, and a long body behind it.
fn png(width: u32) -> Bytes {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(56_u32.to_be_bytes());
    bytes.extend(b"\x08\x02\0\0\0\0\0\0\0\0\x09\x27\xc0IDAT");
    bytes.resize(bytes.len() + 600_000, 7);
    bytes.extend(b"\0\0\0\0\0\0\0\0IEND\0\0\0\0");
    Bytes::from(bytes)
}

fn resource(width: u32, etag: Option<&str>, fresh_s: u64) -> Resource {
    Resource {
        bytes: png(width),
        validator: Validator { etag: etag.map(str::to_owned), last_modified: None },
        freshness: Freshness { fresh_for: Duration::from_secs(fresh_s), no_store: false },
    }
}

static SIDES: AtomicUsize = AtomicUsize::new(0);

/// The media side of one frontend.
struct Side {
    cache: DimCache,
    headers: HeaderCache,
    source: MemorySource,
    clock: Arc<dyn Clock>,
    gossip: Gossip,
    node: Node,
}

impl Side {
    fn new(name: &str, secret: &str) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::from_wall(1_800_000_000_000));
        let (source, gossip) = (MemorySource::default(), Gossip::new(secret));
        let pool = Preprocessor::new(actors::preprocessor::Config::default());
        let config = dim_cache::Config { gossip: gossip.clone(), ..dim_cache::Config::default() };
        let cache = DimCache::new(config, Arc::new(source.clone()), Arc::clone(&clock), pool);
        let config = header_cache::Config { gossip: gossip.clone(), ..header_cache::Config::default() };
        let headers = HeaderCache::new(config, Arc::new(source.clone()), Arc::clone(&clock));
        // Actors' names are the process's, and tests may share one.
        let node = Node::start(&format!("{name}-{}", SIDES.fetch_add(1, Ordering::Relaxed)));
        Self { cache, headers, source, clock, gossip, node }
    }

    async fn join(&self, bus: &InMemoryBus, name: &str) -> FactBoardHandle {
        let args = FactBoardArgs {
            namespace: "ns".to_owned(),
            frontend: name.to_owned(),
            bus: Arc::new(bus.clone()),
            clock: Arc::clone(&self.clock),
            gossip: self.gossip.clone(),
            cache: self.cache.clone(),
            headers: self.headers.clone(),
        };
        FactBoardHandle::start(&self.node, args).await.unwrap()
    }
}

/// Waits until a board has taken in so many facts.
async fn heard(board: &FactBoardHandle, count: u64) {
    let waiting = async {
        while board.tally().heard < count {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap();
}

fn size(width: u32) -> Option<ImageSize> {
    Some(ImageSize::new(width, 56))
}

#[tokio::test(start_paused = true)]
async fn a_header_is_read_once_while_fresh_and_confirmed_after() {
    let side = Side::new("one", "");
    side.source.put(URL, resource(28, Some("\"a\""), 60));
    let all = futures::future::join_all((0..8).map(|_| side.headers.glance(URL))).await;
    assert!(all.iter().all(|glance| glance.as_ref().unwrap().size == size(28)));
    assert_eq!((side.source.fetches().len(), side.source.read_bytes()), (1, 16 << 10));
    let version = all.first().unwrap().as_ref().unwrap().version;
    tokio::time::advance(Duration::from_secs(61)).await;
    let confirmed = side.headers.glance(URL).await.unwrap();
    assert!(confirmed.asked && confirmed.version == version);
    assert_eq!((side.source.fetches().len(), side.source.read_bytes()), (2, 16 << 10));
    side.source.put(URL, resource(56, Some("\"b\""), 60));
    tokio::time::advance(Duration::from_secs(61)).await;
    let changed = side.headers.glance(URL).await.unwrap();
    assert!(changed.version != version && changed.size == size(56));
}

#[tokio::test(start_paused = true)]
async fn a_png_is_read_up_to_its_image_data() {
    let (plain, pixels) = (png(28), 8 + 25);
    let mut turned = plain.get(..pixels).unwrap().to_vec();
    // A profile longer than the first read, and behind it what turns the image.
    let exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    for (name, data) in [(b"iCCP", &[7; 40_000][..]), (b"eXIf", exif)] {
        turned.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
        turned.extend([&name[..], data, &[0; 4]].concat());
    }
    turned.extend(plain.get(pixels..).unwrap());
    let side = Side::new("one", "");
    side.source.put(URL, Resource { bytes: Bytes::from(turned), ..resource(28, None, 60) });
    let glance = side.headers.glance(URL).await.unwrap();
    assert_eq!((glance.size, side.source.read_bytes()), (Some(ImageSize::new(56, 28)), 64 << 10));
}

#[tokio::test(start_paused = true)]
async fn a_forged_signature_costs_others_nothing() {
    let side = Side::new("one", "");
    let signed = format!("{URL}?sig=good");
    side.source.put(&signed, resource(28, Some("\"a\""), 60));
    assert!(
        side.headers.glance(&signed).await.is_ok()
            && side.cache.fetch(&signed, &Allowance::default()).await.is_ok()
    );
    let forged = format!("{URL}?sig=bad");
    let refused = Err(Error::Source(media_source::Error::Status { status: 404 }));
    assert_eq!(side.headers.glance(&forged).await, refused);
    assert!(side.cache.fetch(&forged, &Allowance::default()).await.is_err());
    let asked = side.source.fetches().len();
    assert!(
        side.headers.glance(&signed).await.is_ok()
            && side.cache.fetch(&signed, &Allowance::default()).await.is_ok()
    );
    assert_eq!(side.source.fetches().len(), asked);
}

#[tokio::test(start_paused = true)]
async fn what_one_frontend_fetched_another_knows() {
    let bus = InMemoryBus::new();
    let (one, two) = (Side::new("one", "secret"), Side::new("two", "secret"));
    let (_ours, theirs) = (one.join(&bus, "one").await, two.join(&bus, "two").await);
    let stranger = Side::new("three", "another secret");
    let strange = stranger.join(&bus, "three").await;
    one.source.put(URL, resource(28, Some("\"a\""), 60));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let known = one.cache.fetch(URL, &Allowance::default()).await.unwrap().known;
    one.cache.name("tenant", "cat", &known).await;
    heard(&theirs, 2).await;
    heard(&strange, 2).await;
    assert_eq!(two.cache.know(URL, &Allowance::default()).await, Ok((known.clone(), false)));
    assert_eq!(two.cache.named("tenant", "cat").await, Some(known.clone()));
    assert_eq!(two.cache.named("other", "cat").await, None);
    assert_eq!((two.source.fetches().len(), stranger.cache.named("tenant", "cat").await), (0, None));
    assert!(stranger.cache.know(URL, &Allowance::default()).await.is_err(), "another secret, another digest");

    // Bytes are needed: they are fetched, and if they are others their identity wins, everywhere.
    two.source.put(URL, resource(84, Some("\"b\""), 60));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let other = two.cache.fetch(URL, &Allowance::default()).await.unwrap().known;
    assert_ne!(other.id, known.id);
    heard(&_ours, 1).await;
    assert_eq!(one.cache.know(URL, &Allowance::default()).await, Ok((other.clone(), false)));

    // Nobody's word is believed for longer than the origin's.
    one.source.put(URL, resource(112, None, 0));
    tokio::time::advance(Duration::from_secs(61)).await;
    let (new, asked) = one.cache.know(URL, &Allowance::default()).await.unwrap();
    assert!(asked && new.id != other.id);
}

#[tokio::test(start_paused = true)]
async fn what_a_signature_opened_is_told_to_nobody() {
    let bus = InMemoryBus::new();
    let (one, two) = (Side::new("one", ""), Side::new("two", ""));
    let (ours, theirs) = (one.join(&bus, "one").await, two.join(&bus, "two").await);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let signed = format!("{URL}?X-Amz-Signature=x");
    one.source.put(&signed, resource(28, Some("\"a\""), 60));
    one.cache.fetch(&signed, &Allowance::default()).await.unwrap();
    one.headers.glance(&signed).await.unwrap();
    // Told after the others, so that they would have been heard by then.
    one.source.put("http://origin.example/public", resource(28, None, 60));
    one.source.put("http://origin.example/fleeting", resource(28, None, 0));
    one.cache.fetch("http://origin.example/fleeting", &Allowance::default()).await.unwrap();
    one.cache.fetch("http://origin.example/public", &Allowance::default()).await.unwrap();
    heard(&theirs, 1).await;
    assert_eq!((ours.tally().told, theirs.tally().heard), (1, 1));
    assert!(two.cache.know(&signed, &Allowance::default()).await.is_err());
    assert!(two.headers.glance(URL).await.is_err());
}

fn model() -> Model {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tiny-vl");
    Model::new(&ModelFiles::read(&dir).unwrap(), ModelOptions::default()).unwrap()
}

fn prepare(model: &Model, id: Option<&str>) -> Prepared {
    let body = format!(
        r#"{{"messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{URL}"}}}},
        {{"type":"text","text":"what is this, and why is it here at all, of all the places there are"}}]}}]}}"#
    );
    let request = ChatRequest::parse(&Bytes::from(body)).unwrap();
    let facts = [MediaFact { index: 0, id: id.map(MediaId::new), size: Some(ImageSize::new(280, 280)) }];
    let options = PrepareOptions { block_sizes: &[16], ..PrepareOptions::default() };
    model.prepare(&request, &facts, &options).unwrap()
}

/// What an engine shows of the prompt when it names its image.
fn run(model: &Model, id: &str) -> MediaRun {
    let whole = prepare(model, Some(id));
    let first = whole.media.first().unwrap();
    let first_key = *whole.routing.chain(16).unwrap().get(first.offset / 16).unwrap();
    MediaRun { id: MediaId::new(id), first_key, tokens: first.tokens }
}

#[tokio::test(start_paused = true)]
async fn names_are_learned_from_requests_in_flight_and_told() {
    let bus = InMemoryBus::new();
    let (one, two) = (Side::new("one", ""), Side::new("two", ""));
    let (_ours, theirs) = (one.join(&bus, "one").await, two.join(&bus, "two").await);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let args = NameLearnerArgs {
        frontend: "one".to_owned(),
        clock: Arc::clone(&one.clock),
        headers: one.headers.clone(),
    };
    let learner = NameLearnerHandle::start(&one.node, args).await.unwrap();
    for (at, url) in ["http://o/a", "http://o/b", "http://o/c"].into_iter().enumerate() {
        one.source.put(url, resource(280 + u32::try_from(at).unwrap(), Some("\"a\""), 3600));
    }
    let (model, tiny) = (model(), ModelName::new("tiny-vl"));
    let holder = |name: &str| Holder { worker: WorkerId::new(name), rank: Rank(0) };
    let riddle = async |url: &str| {
        let version = one.headers.glance(url).await.unwrap().version;
        let nameless = prepare(&model, None).nameless.unwrap();
        Arc::new(Riddle { model: tiny.clone(), nameless, versions: vec![(0, version)] })
    };
    let name = async |side: &Side, url: &str| side.headers.glance(url).await.unwrap().name(&tiny).cloned();
    let (a, b, c) = (riddle("http://o/a").await, riddle("http://o/b").await, riddle("http://o/c").await);

    // One request, one name; another holder's do not count, nor what was never answered.
    let quest = learner.begin(Arc::clone(&a), holder("w0"), 16);
    drop(learner.begin(Arc::clone(&b), holder("w0"), 16));
    learner.computed(&holder("w1"), &[&run(&model, "engine-x")]);
    learner.computed(&holder("w0"), &[&run(&model, "engine-a")]);
    quest.answered(Some(0));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(name(&one, "http://o/a").await, Some(MediaId::new("engine-a")));
    heard(&theirs, 4).await;
    assert_eq!(name(&two, "http://o/a").await, Some(MediaId::new("engine-a")));
    assert_eq!(two.source.fetches().len(), 0);

    // Two alike at once: whose name it is cannot be told. What the engine had before tells nothing either.
    let quests = [&b, &c].map(|riddle| learner.begin(Arc::clone(riddle), holder("w0"), 16));
    learner.computed(&holder("w0"), &[&run(&model, "engine-b"), &run(&model, "engine-c")]);
    quests.into_iter().for_each(|quest| quest.answered(None));
    let quest = learner.begin(Arc::clone(&b), holder("w2"), 16);
    learner.computed(&holder("w2"), &[&run(&model, "engine-c")]);
    quest.answered(Some(64));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((name(&one, "http://o/b").await, name(&one, "http://o/c").await), (None, None));
    assert_eq!((learner.tally().learned, learner.tally().unsolved), (1, 3));

    // A name that predicted wrongly goes.
    learner.distrust(&tiny, &[a.versions.first().unwrap().1]);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(name(&one, "http://o/a").await, None);
}
