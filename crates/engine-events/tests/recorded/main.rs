//! Frames that real vLLM processes published, with what those processes said of the requests behind them.
#![expect(clippy::expect_used, reason = "recorded frames have a known form")]

mod completion;
mod fixture;

use std::collections::{HashMap, HashSet};

use completion::completions;
use engine_events::{Batch, EngineHash, Event, ExtraKeys, Translator, vllm};
use fixture::{frames, learned_ids, requests, spans};
use identity::{BlockKey, KeyScope, MediaKey, MediaSpan, block_keys};
use membership::Change;

const BLOCK_SIZE: u32 = 32;

/// Applies changes to a set, and checks that the set stays closed after every key of every change.
#[derive(Default)]
struct Replica(HashMap<BlockKey, Option<BlockKey>>);

impl Replica {
    fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Stored { parent, keys, media } => {
                    let mut parent = *parent;
                    for key in keys {
                        assert!(parent.is_none_or(|parent| self.0.contains_key(&parent)), "parents first");
                        assert!(self.0.insert(*key, parent).is_none(), "new keys only");
                        parent = Some(*key);
                    }
                    assert!(media.iter().all(|item| keys.contains(&item.first_key) && item.tokens > 0));
                }
                Change::Removed { keys } => {
                    for key in keys {
                        assert!(self.0.remove(key).is_some(), "known keys only");
                    }
                    let orphan = self.0.values().flatten().find(|parent| !self.0.contains_key(*parent));
                    assert_eq!(orphan, None, "children first");
                }
                Change::Cleared => self.0.clear(),
            }
        }
    }
}

/// Answers what a router predicts, whose index holds what the replica holds.
fn predict(salt: &str, prompt: &[u32], media: &[MediaSpan], replica: &Replica) -> u64 {
    let root = KeyScope { cache_salt: salt, ..KeyScope::default() }.root();
    let keys = block_keys(root, prompt, media, BLOCK_SIZE);
    let matched = keys.iter().take_while(|key| replica.0.contains_key(key)).count() as u64;
    let prompt = prompt.len() as u64;
    matched.min((prompt - 1) / u64::from(BLOCK_SIZE)) * u64::from(BLOCK_SIZE)
}

fn check_routing(model: &str, comparable_expected: usize) {
    let ids = learned_ids(model);
    let mut frames = frames(&format!("routing_{model}_a")).into_iter().peekable();
    let mut translator =
        Translator::new(engine_events::Config { block_size: BLOCK_SIZE, ..engine_events::Config::default() });
    let mut replica = Replica::default();
    let mut comparable = 0;
    for request in requests(model) {
        if request.comparable {
            let predicted = predict(&request.salt, &request.prompt, &spans(&request, &ids), &replica);
            assert_eq!(predicted, request.cached, "{model} {}", request.label);
            comparable += 1;
        }
        while let Some((_, payload)) = frames.next_if(|(label, _)| *label == request.label) {
            replica.apply(&translator.apply(&vllm::decode(&payload).expect("decodes")));
        }
        assert_eq!(translator.blocks(), replica.0.len() as u64);
    }
    assert_eq!(frames.next(), None, "every frame belongs to a request");
    assert_eq!(comparable, comparable_expected);
    assert_eq!(translator.counts(), engine_events::Counts::default(), "everything was credited");
    assert!((translator.coverage() - 1.0).abs() < f64::EPSILON);
}

#[test]
fn cached_tokens_of_tiny_vl_are_predicted() {
    check_routing("tiny_vl", 77);
}

#[test]
fn cached_tokens_of_qwen2_5_vl_are_predicted() {
    check_routing("qwen2_5_vl", 72);
}

#[test]
fn cached_tokens_of_qwen3_vl_are_predicted() {
    check_routing("qwen3_vl", 72);
}

/// What a capture amounted to.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    stored: usize,
    removed: usize,
    /// Visible blocks at the end, over all ranks.
    blocks: usize,
    /// Requests with token ids in their body, whose cached tokens were predicted.
    predicted: usize,
}

/// Translates all frames of a capture, rank by rank, and predicts the requests on the way.
fn translate(name: &str) -> Totals {
    let config = engine_events::Config { block_size: BLOCK_SIZE, ..engine_events::Config::default() };
    let mut ranks: HashMap<u16, (Translator, Replica)> = HashMap::new();
    let mut frames = frames(name).into_iter().peekable();
    let mut totals = Totals::default();
    for completion in completions(name) {
        if let Some(cached) = completion.cached {
            let (_, replica) = ranks.entry(completion.rank).or_insert_with(|| fresh(&config));
            let predicted = predict(&completion.salt, &completion.prompt, &[], replica);
            assert_eq!(predicted, cached, "{name} {}", completion.label);
            totals.predicted += 1;
        }
        while let Some((_, payload)) = frames.next_if(|(label, _)| *label == completion.label) {
            let batch: Batch = vllm::decode(&payload).expect("decodes");
            assert_eq!((batch.malformed, batch.unknown), (0, 0), "{name} {}", completion.label);
            for event in &batch.events {
                match event {
                    Event::Stored(event) => totals.stored += event.hashes.len(),
                    Event::Removed(event) => totals.removed += event.hashes.len(),
                    Event::Cleared => {}
                }
            }
            let rank = batch.rank.expect("the publisher names the rank");
            let (translator, replica) = ranks.entry(rank).or_insert_with(|| fresh(&config));
            replica.apply(&translator.apply(&batch));
            let mut digest = identity::KeySetDigest::default();
            replica.0.keys().for_each(|key| digest.add(*key));
            assert_eq!(digest, *translator.digest(), "{name} {}", completion.label);
        }
    }
    assert_eq!(frames.next(), None, "every frame belongs to a request");
    for (translator, replica) in ranks.values() {
        let counts = translator.counts();
        assert_eq!((counts.uncredited, counts.unknown_removed, counts.conflicts), (0, 0, 0), "{name}");
        totals.blocks += replica.0.len();
    }
    totals
}

fn fresh(config: &engine_events::Config) -> (Translator, Replica) {
    (Translator::new(config.clone()), Replica::default())
}

#[test]
fn all_recorded_frames_translate() {
    let check = |name, stored, removed, blocks, predicted| {
        assert_eq!(translate(name), Totals { stored, removed, blocks, predicted }, "{name}");
    };
    check("main_v0.32.0_sha256_int", 52, 0, 3, 10);
    check("main_v0.23.0_sha256_int_ARRAYFORMAT", 52, 0, 3, 10);
    check("evict_v0.32.0_xxhashcbor_seed0_24blocks", 73, 51, 22, 7);
    check("dp2_v0.32.0", 21, 0, 6, 7);
    check("short_qwen3vl_v0.32.0_sha256_int", 14, 0, 14, 3);
}

/// What the events of a release can tell of the image in the logical batch that `synthetic_by_version` encodes.
#[test]
fn the_same_batch_in_17_releases() {
    let mut releases = HashSet::new();
    let media = MediaSpan { key: MediaKey::of(&"ab".repeat(32)), start: 4, len: 28 };
    for line in fixture::lines("synthetic_by_version.jsonl") {
        let (version, what) = (line["version"].as_str().expect("text"), line["what"].as_str().expect("text"));
        let batch = vllm::decode(&fixture::bytes(&line["payload_b64"])).expect("decodes");
        let label = format!("{version} {what}");
        assert_eq!((batch.malformed, batch.unknown, batch.rank), (0, 0, Some(0)), "{label}");
        let Some(Event::Stored(stored)) = batch.events.first() else {
            unreachable!("{label} begins with a store")
        };
        assert_eq!((stored.hashes.len(), stored.tokens.len(), stored.block_size), (2, 32, 16), "{label}");
        let names_media = !matches!(version, "0.10.2" | "0.13.0" | "0.14.1" | "0.16.0");
        assert_eq!(matches!(stored.extra_keys, ExtraKeys::Listed(_)), names_media, "{label}");

        let config =
            engine_events::Config { block_size: 16, placeholders: vec![151_655], ..Default::default() };
        let (mut translator, mut replica) = fresh(&config);
        replica.apply(&translator.apply(&Batch { events: batch.events[..1].to_vec(), ..Batch::default() }));
        if what == "stored_bytes_hash" {
            assert!(
                matches!(&stored.hashes[..], [EngineHash::Bytes(first), EngineHash::Bytes(_)] if first.len() == 32)
            );
            assert!(stored.parent.is_some() && replica.0.is_empty(), "{label}: the parent is not known");
        } else {
            assert_eq!(
                stored.hashes,
                [EngineHash::Int(0xfedc_ba98_7654_3210), EngineHash::Int(17)],
                "{label}"
            );
            let expected = block_keys(KeyScope::default().root(), &stored.tokens, &[media], 16);
            let keys: HashSet<_> = if names_media { expected.into_iter().collect() } else { HashSet::new() };
            assert_eq!(replica.0.keys().copied().collect::<HashSet<_>>(), keys, "{label}");
            let [Event::Removed(removed), Event::Cleared] = &batch.events[1..] else {
                unreachable!("{label}")
            };
            assert_eq!(removed.hashes, [EngineHash::Int(17)]);
        }
        releases.insert(version.to_owned());
    }
    assert_eq!(releases.len(), 17);
}
