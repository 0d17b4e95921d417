//! Media ids name bytes: nothing shares one, by chance or by craft.

use std::collections::HashSet;

use bytes::Bytes;
use identity::{MediaId, MediaKey};
use prompt::{ChatRequest, LearnedCounts, MediaEdit, Pupil, media_id};

/// Pairs of images compared; the environment variable `SIGHTLINE_ID_PAIRS` raises it.
const PAIRS: u64 = 20_000;

/// Steps a splitmix64 generator.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// An uncompressed bitmap of 6 by 4 random pixels: all images have one length and one header.
fn image(state: &mut u64) -> Vec<u8> {
    let mut bytes = b"BM\x96\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x06\0\0\0\x04\0\0\0\x01\0\x20\0".to_vec();
    bytes.resize(54, 0);
    (0..12).for_each(|_| bytes.extend(random(state).to_le_bytes()));
    bytes
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long a test runs is no configuration of a service")]
fn random_images_of_one_size_share_no_id() {
    let pairs = std::env::var("SIGHTLINE_ID_PAIRS").ok().and_then(|text| text.parse().ok()).unwrap_or(PAIRS);
    let (mut state, mut ids, mut keys) = (7, HashSet::new(), HashSet::new());
    for pair in 0..pairs {
        let (one, other) = (media_id(&image(&mut state)), media_id(&image(&mut state)));
        assert_ne!(one, other, "pair {pair}");
        for id in [one, other] {
            assert_eq!(id.as_str().len(), 64);
            assert!(keys.insert(id.key()), "routing keys by chance: one in 2^64 for each two");
            // Half of an id is more than enough to tell them apart.
            let half = u128::from_str_radix(id.as_str().split_at(32).0, 16).unwrap_or_default();
            assert!(ids.insert(half), "pair {pair}");
        }
    }
    assert_eq!(ids.len() as u64, pairs * 2);
}

/// Two URLs of 300 characters with one xxh3-64 (seed 0).
///
/// Below its scrambling step, xxh3 adds each 64-bit word of a stripe to a neighbouring accumulator, and the product of the
/// word's halves, each xored with a secret, to its own. In both changed words the xored halves keep their product (they go
/// from (2a, 3b) to (3a, 2b), and from (4a, 3b) to (3a, 4b)), and the changes of the words themselves add up to zero.
fn colliding() -> [String; 2] {
    let url = |early: &str, late: &str| {
        let mut url = format!("http://images.test/{}", "x".repeat(281));
        url.replace_range(64..72, early);
        url.replace_range(192..200, late);
        url
    };
    [url("hEawBeMU", "XfT9bj8Z"), url("s2ihkz-~", "MyLH9UX1")]
}

#[test]
fn what_collides_in_xxh3_shares_no_id() {
    let [one, other] = colliding();
    assert_ne!(one, other);
    assert_eq!(MediaKey::of(&one), MediaKey::of(&other), "crafted to collide");
    // Ids are made of bytes by blake3, and routing keys of ids: craft in the bytes reaches neither.
    let ids = [media_id(one.as_bytes()), media_id(other.as_bytes())];
    assert_ne!(ids[0], ids[1]);
    assert_ne!(ids[0].key(), ids[1].key());
}

#[test]
fn a_collision_of_routing_keys_costs_a_prediction_and_no_identity() {
    // Engines may make up names, and names may collide: then the router takes one image for the other, and no one else does.
    let [one, other] = colliding().map(|name| MediaId::new(&name));
    let mut learned = LearnedCounts::default();
    let pupil = |id: &MediaId| Pupil { item: Some(id.key()), size: None };
    learned.tell(pupil(&one), 80);
    assert_eq!(learned.count(pupil(&other)), Some(80), "a wrong prediction");
    learned.contradict([pupil(&other)]);
    assert_eq!(learned.count(pupil(&other)), None, "until an engine contradicts it");
    let body =
        br#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://h/1"}},
        {"type":"image_url","image_url":{"url":"http://h/2"}}]}]}"#;
    let request = ChatRequest::parse(&Bytes::from_static(body)).unwrap();
    let edit = |(index, id): (usize, &MediaId)| MediaEdit {
        index,
        uuid: Some(id.as_str().to_owned()),
        replaces_url: false,
        unnames: false,
    };
    let edits: Vec<MediaEdit> = [&one, &other].into_iter().enumerate().map(edit).collect();
    let sent = request.outline(&edits).fill(|_| None).concat();
    let sent: serde_json::Value = serde_json::from_slice(&sent).unwrap();
    let uuid = |index: usize| sent["messages"][0]["content"][index]["uuid"].clone();
    assert_eq!([uuid(0), uuid(1)], [one.as_str(), other.as_str()], "engines get whole names");
}
