//! The layout of every message, byte by byte, and what decoding makes of bytes that are not messages.
#![expect(clippy::panic, clippy::unwrap_used, reason = "test code outside of test functions")]

use std::fmt::Write as _;
use std::path::Path;

use identity::{BlockKey, Holder, Incarnation, KeySetDigest, MediaId, MediaKey, ModelName, Rank, WorkerId};
use membership::card::{ContentFormat, Feed, MediaCache, RankFeed, State};
use membership::replica::Phase;
use membership::{Beat, Card, Change, Delta, MediaRun, Run};
use proptest::prelude::*;
use wire::command::{Answer, Command};
use wire::fact::{Fact, Facts, Item, Name, Validator};
use wire::files;
use wire::kv::{self, Update};
use wire::load::{Gauge, Gauges};
use wire::lookup;
use wire::notice::{News, Notice, Notices};
use wire::peer::{Offered, Question};
use wire::sync::{CHUNK_BYTES_MAX, Refusal, Request, Response, Snapshot};

const LIFE: Incarnation = Incarnation { started_ms: 1_790_000_000_123, nonce: 0xfeed_beef };

fn delta() -> Delta {
    Delta {
        scheme: identity::SCHEME.to_owned(),
        model: ModelName::new("tiny-vl"),
        worker: WorkerId::new("w0"),
        rank: Rank(1),
        incarnation: LIFE,
        seq: 42,
        changes: vec![
            Change::Removed { keys: vec![BlockKey::new(9), BlockKey::new(8)] },
            Change::Stored {
                parent: Some(BlockKey::new(0x1122_3344_5566_7788)),
                keys: vec![BlockKey::new(1), BlockKey::new(2)],
                media: vec![MediaRun { id: MediaId::new("cat"), first_key: BlockKey::new(2), tokens: 66 }],
            },
            Change::Stored { parent: None, keys: vec![BlockKey::new(3)], media: vec![] },
            Change::Cleared,
        ],
    }
}

fn beat() -> Beat {
    Beat {
        scheme: identity::SCHEME.to_owned(),
        model: ModelName::new("tiny-vl"),
        worker: WorkerId::new("w0"),
        rank: Rank(1),
        incarnation: LIFE,
        seq: 42,
        blocks: 3,
        digest: 0xd1_9e57,
        running: 2,
        waiting: 1,
        kv_usage: 0.25,
        engine_healthy: true,
        coverage: 1.0,
    }
}

fn digest() -> KeySetDigest {
    let mut digest = KeySetDigest::default();
    [0, 1 << 56, 255 << 56].into_iter().for_each(|key| digest.add(BlockKey::new(key)));
    digest
}

fn runs() -> Vec<Run> {
    vec![
        Run { parent: None, keys: vec![BlockKey::new(1), BlockKey::new(2)] },
        Run { parent: Some(BlockKey::new(2)), keys: vec![BlockKey::new(5)] },
    ]
}

fn requests() -> Vec<(&'static str, Request)> {
    vec![
        ("request-range", Request::Range { incarnation: LIFE, from: 43 }),
        ("request-digest", Request::Digest),
        ("request-buckets", Request::Buckets { incarnation: LIFE, digest: digest() }),
        ("request-open", Request::Open { incarnation: LIFE }),
        ("request-chunk", Request::Chunk { snapshot: 7, index: 3 }),
        ("request-succeed", Request::Succeed { silent: LIFE }),
    ]
}

fn responses() -> Vec<(&'static str, Response)> {
    let snapshot = Snapshot { id: 7, seq: 42, digest: digest(), blocks: 3, chunks: 1 };
    vec![
        ("response-range", Response::Range { deltas: vec![delta()] }),
        ("response-digest", Response::Digest { incarnation: LIFE, seq: 42, digest: digest() }),
        (
            "response-buckets",
            Response::Buckets { seq: 42, digest: digest(), buckets: vec![0, 255], runs: runs() },
        ),
        ("response-opened", Response::Opened(snapshot)),
        ("response-chunk", Response::Chunk { runs: runs() }),
        ("response-refused-incarnation", Response::Refused(Refusal::Incarnation { present: LIFE })),
        ("response-refused-forgotten", Response::Refused(Refusal::Forgotten)),
        ("response-refused-too-large", Response::Refused(Refusal::TooLarge)),
        ("response-refused-no-snapshot", Response::Refused(Refusal::NoSnapshot)),
        ("response-refused-busy", Response::Refused(Refusal::Busy)),
    ]
}

fn gauges() -> Gauges {
    let gauge = Gauge {
        model: ModelName::new("tiny-vl"),
        holder: Holder { worker: WorkerId::new("w0"), rank: Rank(1) },
        version: 5,
        active_requests: 2,
        prefill_tokens: 1000,
        media_tokens: 66,
        decode_blocks: 12,
    };
    Gauges { frontend: "f0".to_owned(), incarnation: LIFE, whole: true, entries: vec![gauge] }
}

fn notices() -> Notices {
    let notice = |dispatch, news| Notice { model: ModelName::new("tiny-vl"), dispatch, news };
    let begun = News::Begun {
        holder: Holder { worker: WorkerId::new("w0"), rank: Rank(1) },
        block_size: 16,
        known: 1,
        keys: vec![BlockKey::new(1), BlockKey::new(2)],
        media: vec![MediaKey::new(7)],
    };
    let notices = vec![
        notice(1, begun),
        notice(1, News::Computed),
        notice(1, News::Confirmed),
        notice(2, News::Failed),
    ];
    Notices { frontend: "f0".to_owned(), notices }
}

fn facts() -> Facts {
    let item = |id: Option<&str>| Item { id: id.map(MediaId::new), size: Some((640, 480)), bytes: 99 };
    let fetched = Fact {
        url: [1; 32],
        validator: Some(Validator::Etag("\"v1\"".to_owned())),
        fresh_ms: 60_000,
        item: item(Some("ab")),
        engine_ids: Vec::new(),
    };
    let probed = Fact {
        url: [2; 32],
        validator: Some(Validator::LastModified("Sun, 06 Nov 1994 08:49:37 GMT".to_owned())),
        fresh_ms: 0,
        item: item(None),
        engine_ids: vec![(ModelName::new("tiny-vl"), MediaId::new("cd"))],
    };
    let names = vec![Name { name: [3; 32], item: item(Some("ab")) }];
    Facts { frontend: "f0".to_owned(), sent_ms: 1_790_000_000_123, facts: vec![fetched, probed], names }
}

fn card() -> Card {
    let mut card = Card::new(WorkerId::new("w0"), ModelName::new("tiny-vl"), "http://127.0.0.1:8100", 16);
    card.agent = "5b3c1d7e9f024a68".to_owned();
    card.aliases = vec![ModelName::new("tiny")];
    card.adapters = vec!["sql".to_owned()];
    card.ranks.push(RankFeed {
        rank: Rank(1),
        events: Some("tcp://127.0.0.1:5600".to_owned()),
        replay: Some("tcp://127.0.0.1:5700".to_owned()),
    });
    card.incarnation = LIFE;
    card.secret_fingerprint = u64::MAX;
    card.template.content_format = ContentFormat::OpenAi;
    card.limits.kv_blocks = 2048;
    card.media_cache = MediaCache { items_max: 4096, ttl_ms: 600_000 };
    card.feed = Feed::Dispatches { ttl_ms: 60_000, blocks_max: 4096 };
    card.state = State::Ready;
    card
}

/// Compares with a golden file; lines of 32 bytes keep differences readable.
fn check_golden(name: &str, message: &[u8]) {
    let mut hex = String::new();
    for line in message.chunks(32) {
        line.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
        hex.push('\n');
    }
    check_text(&format!("{name}.hex"), &hex);
}

fn check_text(file: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/wire").join(file);
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    if golden != text {
        let actual = std::env::temp_dir().join(format!("sightline-golden-{file}"));
        std::fs::write(&actual, text).unwrap();
        panic!("{file} differs from its golden file; the actual one is {}", actual.display());
    }
}

#[test]
fn deltas_and_beats_are_golden_and_survive() {
    let encoded = kv::encode_delta(&delta()).unwrap();
    check_golden("delta", &encoded);
    assert_eq!(kv::decode(&encoded).unwrap(), Update::Delta(delta()));
    let encoded = kv::encode_beat(&beat()).unwrap();
    check_golden("beat", &encoded);
    assert_eq!(kv::decode(&encoded).unwrap(), Update::Beat(beat()));
}

#[test]
fn requests_are_golden_and_survive() {
    for (name, request) in requests() {
        let encoded = request.encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(Request::decode(&encoded).unwrap(), request);
    }
}

#[test]
fn responses_are_golden_and_survive() {
    for (name, response) in responses() {
        let encoded = response.encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(Response::decode(&encoded).unwrap(), response);
    }
    assert_eq!(
        Response::range(&[delta()]).unwrap(),
        Response::Range { deltas: vec![delta()] }.encode().unwrap()
    );
}

#[test]
fn questions_for_files_are_golden_and_survive() {
    let digest = [7; 32];
    for (name, request) in [
        ("files_list", files::Request::List),
        ("files_read", files::Request::Read { digest, offset: 1 << 19 }),
    ] {
        let encoded = request.encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(files::Request::decode(&encoded).unwrap(), request);
    }
    let file = files::File { name: "config.json".to_owned(), bytes: 2, digest };
    for (name, response) in [
        ("files_listing", files::Response::Listing { files: vec![file] }),
        ("files_chunk", files::Response::Chunk { bytes: b"{}".to_vec() }),
        ("files_none", files::Response::NoFile),
    ] {
        let encoded = response.clone().encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(files::Response::decode(&encoded).unwrap(), response);
    }
    let largest = files::Response::Chunk { bytes: vec![0; files::CHUNK_BYTES_MAX] };
    assert_eq!(files::Response::decode(&largest.clone().encode().unwrap()).unwrap(), largest);
}

#[test]
fn questions_to_peers_are_golden_and_survive() {
    let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(1) };
    for (name, question) in [
        ("peer-offer", Question::Offer { asker: 0xfeed }),
        ("peer-open", Question::Open { holder, incarnation: LIFE }),
        ("peer-chunk", Question::Chunk { snapshot: 7, index: 3 }),
    ] {
        let encoded = question.encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(Question::decode(&encoded).unwrap(), question);
    }
    let offered = Offered { peer: 0xbeef };
    let encoded = offered.encode().unwrap();
    check_golden("peer-offered", &encoded);
    assert_eq!(Offered::decode(&encoded).unwrap(), offered);
}

#[test]
fn notices_are_golden_and_survive() {
    let encoded = notices().encode().unwrap();
    check_golden("notices", &encoded);
    assert_eq!(Notices::decode(&encoded).unwrap(), notices());
}

#[test]
fn facts_are_golden_and_survive() {
    let encoded = facts().encode().unwrap();
    check_golden("facts", &encoded);
    assert_eq!(Facts::decode(&encoded).unwrap(), facts());
}

#[test]
fn lookups_are_golden_and_survive() {
    let chain = lookup::Chain { block_size: 16, keys: vec![BlockKey::new(1), BlockKey::new(2)] };
    for (name, request) in [
        ("lookup-depths", lookup::Request::Depths { chains: vec![chain] }),
        ("lookup-roster", lookup::Request::Roster),
    ] {
        let encoded = request.encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(lookup::Request::decode(&encoded).unwrap(), request);
    }
    let holder = Holder { worker: WorkerId::new("w0"), rank: Rank(1) };
    let depth = lookup::Depth { holder: holder.clone(), incarnation: LIFE, blocks: 3 };
    let standing = lookup::Standing {
        holder,
        phase: Phase::Live,
        incarnation: Some(LIFE),
        seq: 42,
        beat_seq: 43,
        removed: 5,
        blocks: 3,
        digest: 0xd1_9e57,
        agrees: Some(true),
        coverage: 1.0,
        running: 2,
        waiting: 1,
        kv_usage: 0.25,
        engine_healthy: true,
        beat_age_ms: Some(420),
    };
    for (name, response) in [
        ("lookup-found", lookup::Response::Depths { found: vec![depth] }),
        ("lookup-standings", lookup::Response::Roster { holders: vec![standing] }),
    ] {
        let encoded = response.encode().unwrap();
        check_golden(name, &encoded);
        assert_eq!(lookup::Response::decode(&encoded).unwrap(), response);
    }
}

#[test]
fn commands_are_golden() {
    check_golden("command-drain", &Command::Drain.encode().unwrap());
    check_golden("command-resume", &Command::Resume.encode().unwrap());
    check_golden("command-done", &Answer::Done { draining: true }.encode().unwrap());
    check_golden("command-not-kept", &Answer::NotKept.encode().unwrap());
}

#[test]
fn gauges_are_golden_and_survive() {
    let encoded = gauges().encode().unwrap();
    check_golden("gauges", &encoded);
    assert_eq!(Gauges::decode(&encoded).unwrap(), gauges());
}

#[test]
fn cards_are_golden_and_survive() {
    let encoded = wire::card::encode(&card()).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&encoded).unwrap();
    check_text("card.json", &(serde_json::to_string_pretty(&value).unwrap() + "\n"));
    assert_eq!(wire::card::decode(&encoded).unwrap(), card());
}

#[test]
fn cards_of_other_releases_are_read() {
    let lean = br#"{"worker":"w","model":"m","endpoint":"http://h/","block_size":16,"novelty":{"a":1}}"#;
    let expected = Card::new(WorkerId::new("w"), ModelName::new("m"), "http://h", 16);
    assert_eq!(wire::card::decode(lean).unwrap(), expected);
    let nameless = br#"{"worker":"","model":"m","endpoint":"e","block_size":16}"#;
    let blockless = br#"{"worker":"w","model":"m","endpoint":"e","block_size":0}"#;
    for bad in [&b"[]"[..], b"{}", nameless, blockless] {
        assert!(wire::card::decode(bad).is_err());
    }
}

#[test]
fn hostile_values_are_refused() {
    let mut sick = beat();
    sick.kv_usage = f32::NAN;
    assert!(kv::decode(&kv::encode_beat(&sick).unwrap()).is_err());
    let mut empty = delta();
    empty.changes = vec![Change::Removed { keys: vec![] }];
    assert!(kv::decode(&kv::encode_delta(&empty).unwrap()).is_err());
}

fn any_runs() -> impl Strategy<Value = Vec<Run>> {
    let run = (any::<Option<u64>>(), 1_usize..100_000).prop_map(|(parent, len)| Run {
        parent: parent.map(BlockKey::new),
        keys: (0..len as u64).map(|key| BlockKey::new(key ^ 0x5555)).collect(),
    });
    prop::collection::vec(run, 0..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_break_a_decoder(mut bytes in prop::collection::vec(any::<u8>(), 0..300), version: bool) {
        if let (Some(first), true) = (bytes.first_mut(), version) {
            *first = wire::VERSION;
        }
        drop((kv::decode(&bytes), Request::decode(&bytes), Response::decode(&bytes), Gauges::decode(&bytes)));
        drop((Question::decode(&bytes), Offered::decode(&bytes)));
    }

    #[test]
    fn flipped_and_cut_messages_break_no_decoder(at in 0_usize..4000, flip: u8, cut in 0_usize..4000) {
        let mut messages: Vec<Vec<u8>> = responses().iter().map(|(_, response)| response.encode().unwrap().to_vec()).collect();
        messages.push(kv::encode_delta(&delta()).unwrap().to_vec());
        for mut message in messages {
            let len = message.len();
            message[at % len] ^= flip;
            message.truncate(cut % (len + 1));
            drop((kv::decode(&message), Response::decode(&message)));
        }
    }

    #[test]
    fn chunks_are_bounded_and_hold_the_same_runs(runs in any_runs()) {
        let mut links = Vec::new();
        for run in &runs {
            let parents = std::iter::once(run.parent).chain(run.keys.iter().copied().map(Some));
            links.extend(parents.zip(run.keys.iter().copied()));
        }
        let mut pulled = Vec::new();
        for chunk in Response::chunks(runs).unwrap() {
            prop_assert!(chunk.len() <= CHUNK_BYTES_MAX);
            let Response::Chunk { runs } = Response::decode(&chunk).unwrap() else { panic!("not a chunk") };
            for run in runs {
                let parents = std::iter::once(run.parent).chain(run.keys.iter().copied().map(Some));
                pulled.extend(parents.zip(run.keys.iter().copied()));
            }
        }
        prop_assert_eq!(pulled, links);
    }

    #[test]
    fn ranges_and_buckets_are_bounded(len in 1_usize..40_000, count in 1_usize..20) {
        let mut long = delta();
        long.changes = vec![Change::Removed { keys: vec![BlockKey::new(1); len] }];
        let range = Response::range(&vec![long; count]).unwrap();
        prop_assert!(range.len() <= CHUNK_BYTES_MAX);
        let run = Run { parent: None, keys: vec![BlockKey::new(1); len] };
        let buckets = Response::buckets(1, &digest(), (0..=255).collect(), vec![run; count]).unwrap();
        prop_assert!(buckets.len() <= CHUNK_BYTES_MAX);
        let refused = matches!(Response::decode(&buckets).unwrap(), Response::Refused(Refusal::TooLarge));
        prop_assert_eq!(refused, count * (len * 8 + 17) > CHUNK_BYTES_MAX - 4096);
    }
}
