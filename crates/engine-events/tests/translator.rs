//! The translator against a naive model: copies per engine hash, and nothing else remembered.
#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    reason = "indices are drawn below the length, numbers are small"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use engine_events::{
    Batch, Config, EngineHash, Event, ExtraKey, ExtraKeys, GroupKind, Lora, Place, Record, Removed, Stored,
    Tier, Translator,
};
use identity::{BlockKey, Incarnation, KeyScope, KeySetDigest, MediaId, MediaSpan, block_keys, extend_key};
use membership::{Change, Run};
use proptest::prelude::*;

const SIZE: u32 = 4;
const BLOCKS: usize = 40;

/// A block that the engine can cache.
#[derive(Clone, Debug)]
struct Block {
    /// Index of the block before it, which is smaller.
    parent: Option<usize>,
    /// What is in it; blocks with equal parents and equal content have one key.
    content: u32,
    /// Whether its extra keys cannot be read.
    opaque: bool,
}

#[derive(Clone, Debug)]
enum Step {
    /// The chain of `length` blocks that ends in `last`.
    Store {
        last: usize,
        length: usize,
    },
    Remove {
        block: usize,
    },
    Clear,
}

fn universe() -> impl Strategy<Value = Vec<Block>> {
    let block =
        (any::<prop::sample::Index>(), prop::bool::weighted(0.2), 0_u32..3, prop::bool::weighted(0.05));
    prop::collection::vec(block, BLOCKS).prop_map(|drawn| {
        let mut blocks = Vec::with_capacity(drawn.len());
        for (place, (index, first, content, opaque)) in drawn.into_iter().enumerate() {
            blocks.push(Block { parent: (place > 0 && !first).then(|| index.index(place)), content, opaque });
        }
        blocks
    })
}

fn batches() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let step = prop_oneof![
        10 => (0..BLOCKS, 1_usize..8).prop_map(|(last, length)| Step::Store { last, length }),
        12 => (0..BLOCKS).prop_map(|block| Step::Remove { block }),
        1 => Just(Step::Clear),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..8), 1..40)
}

/// The naive model.
#[derive(Default)]
struct Model {
    copies: BTreeMap<usize, u32>,
}

impl Model {
    fn step(&mut self, blocks: &[Block], step: &Step) {
        match step {
            Step::Store { last, length } => {
                for block in chain(blocks, *last, *length) {
                    *self.copies.entry(block).or_default() += 1;
                }
            }
            Step::Remove { block } => {
                if let Some(copies) = self.copies.get_mut(block) {
                    *copies = copies.saturating_sub(1);
                }
            }
            Step::Clear => self.copies.clear(),
        }
    }

    /// The keys of all blocks that are cached together with everything before them.
    fn keys(&self, blocks: &[Block]) -> BTreeSet<BlockKey> {
        (0..blocks.len()).filter_map(|block| self.key(blocks, block)).collect()
    }

    fn key(&self, blocks: &[Block], index: usize) -> Option<BlockKey> {
        let block = &blocks[index];
        if block.opaque || self.copies.get(&index).is_none_or(|copies| *copies == 0) {
            return None;
        }
        let parent = match block.parent {
            Some(parent) => self.key(blocks, parent)?,
            None => KeyScope::default().root(),
        };
        Some(extend_key(parent, &[block.content; SIZE as usize], []))
    }
}

/// Lists the last `length` blocks of the prompt that ends in `last`, in order.
fn chain(blocks: &[Block], last: usize, length: usize) -> Vec<usize> {
    let mut chain: Vec<_> =
        std::iter::successors(Some(last), |block| blocks[*block].parent).take(length).collect();
    chain.reverse();
    chain
}

fn hash(block: usize) -> EngineHash {
    if block.is_multiple_of(2) {
        EngineHash::Int(block as u64)
    } else {
        EngineHash::Bytes(Box::new([block as u8; 32]))
    }
}

const fn place() -> Place {
    Place { tier: Tier::Gpu, group: 0, kind: Some(GroupKind::Full) }
}

fn event(blocks: &[Block], step: &Step) -> Event {
    match step {
        Step::Store { last, length } => {
            let chain = chain(blocks, *last, *length);
            let extra =
                |block: &usize| if blocks[*block].opaque { vec![ExtraKey::Opaque] } else { Vec::new() };
            Event::Stored(Stored {
                hashes: chain.iter().map(|block| hash(*block)).collect(),
                parent: blocks[chain[0]].parent.map(hash),
                tokens: chain.iter().flat_map(|block| [blocks[*block].content; SIZE as usize]).collect(),
                block_size: SIZE,
                lora: Lora::None,
                extra_keys: ExtraKeys::Listed(chain.iter().map(extra).collect()),
                place: place(),
            })
        }
        Step::Remove { block } => Event::Removed(Removed { hashes: vec![hash(*block)], place: place() }),
        Step::Clear => Event::Cleared,
    }
}

fn batch(events: Vec<Event>) -> Batch {
    Batch { events, ..Batch::default() }
}

fn translator() -> Translator {
    Translator::new(Config { block_size: SIZE, ..Config::default() })
}

/// A replica that checks every change: closed after each key, nothing stored twice, nothing removed that is not there.
#[derive(Clone, Debug, Default, PartialEq)]
struct Replica(BTreeMap<BlockKey, Option<BlockKey>>);

impl Replica {
    fn apply(&mut self, changes: &[Change]) -> Result<(), TestCaseError> {
        for change in changes {
            match change {
                Change::Stored { parent, keys, .. } => self.store(*parent, keys)?,
                Change::Removed { keys } => {
                    for key in keys {
                        prop_assert!(self.0.remove(key).is_some(), "removed {key} is there");
                        prop_assert!(
                            !self.0.values().any(|parent| *parent == Some(*key)),
                            "children go first"
                        );
                    }
                }
                Change::Cleared => self.0.clear(),
            }
        }
        Ok(())
    }

    fn store(&mut self, mut parent: Option<BlockKey>, keys: &[BlockKey]) -> Result<(), TestCaseError> {
        prop_assert!(!keys.is_empty());
        for key in keys {
            prop_assert!(parent.is_none_or(|parent| self.0.contains_key(&parent)), "parents come first");
            prop_assert!(self.0.insert(*key, parent).is_none(), "stored {key} is new");
            parent = Some(*key);
        }
        Ok(())
    }

    fn from_runs(runs: &[Run]) -> Result<Self, TestCaseError> {
        let mut replica = Self::default();
        runs.iter().try_for_each(|run| replica.store(run.parent, &run.keys))?;
        Ok(replica)
    }

    fn agrees(&self, translator: &Translator) -> Result<(), TestCaseError> {
        let mut digest = KeySetDigest::default();
        self.0.keys().for_each(|key| digest.add(*key));
        prop_assert_eq!(&digest, translator.digest());
        prop_assert_eq!(self.0.len() as u64, translator.blocks());
        prop_assert_eq!(&Self::from_runs(&translator.runs())?, self);
        prop_assert!((0.0..=1.0).contains(&translator.coverage()));
        Ok(())
    }
}

/// Nothing changes twice in the changes of one batch.
fn is_netted(changes: &[Change]) -> bool {
    let mut seen = BTreeSet::new();
    changes.iter().all(|change| match change {
        Change::Stored { keys, .. } | Change::Removed { keys } => keys.iter().all(|key| seen.insert(*key)),
        Change::Cleared => true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn visible_keys_are_those_of_the_model(blocks in universe(), batches in batches()) {
        let (mut translator, mut model, mut replica) = (translator(), Model::default(), Replica::default());
        for steps in &batches {
            let changes = translator.apply(&batch(steps.iter().map(|step| event(&blocks, step)).collect()));
            steps.iter().for_each(|step| model.step(&blocks, step));
            prop_assert!(is_netted(&changes), "{changes:?}");
            replica.apply(&changes)?;
            prop_assert_eq!(replica.0.keys().copied().collect::<BTreeSet<_>>(), model.keys(&blocks));
            replica.agrees(&translator)?;
        }
    }

    #[test]
    fn a_restored_translator_goes_on_like_the_saved_one(
        blocks in universe(),
        before in batches(),
        after in batches(),
    ) {
        let mut translator = translator();
        let mut replica = Replica::default();
        for steps in &before {
            replica.apply(&translator.apply(&batch(steps.iter().map(|step| event(&blocks, step)).collect())))?;
        }
        let record = Record {
            incarnation: Incarnation { started_ms: 5, nonce: u64::MAX },
            engine_started_ms: Some(5),
            seq: 77,
            mark: Some((3, u64::MAX)),
            state: translator.checkpoint(),
        };
        let bytes = record.to_bytes();
        let read = Record::from_bytes(&bytes).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!((read.incarnation, read.seq, read.mark), (record.incarnation, 77, record.mark));
        prop_assert!(Record::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        let mut restored = Translator::restore(translator.config().clone(), &read.state)
            .map_err(|error| TestCaseError::fail(error.to_string()))?;
        replica.agrees(&restored)?;
        prop_assert!((translator.coverage() - restored.coverage()).abs() < 1e-9);
        for steps in &after {
            let batch = batch(steps.iter().map(|step| event(&blocks, step)).collect());
            prop_assert_eq!(translator.apply(&batch), restored.apply(&batch));
            prop_assert_eq!(translator.digest(), restored.digest());
        }
    }

    /// Engines that contradict themselves: any hash behind any parent, itself included, and too many of them.
    #[test]
    fn nonsense_keeps_the_invariants(
        events in prop::collection::vec(
            (prop::option::of(0_u64..12), prop::collection::vec(0_u64..12, 0..5), 0_u32..2, 0_u8..8),
            1..120,
        ),
    ) {
        let mut translator = Translator::new(Config { block_size: SIZE, blocks_max: 9, ..Config::default() });
        let mut replica = Replica::default();
        for (parent, hashes, token, kind) in events {
            let hashes: Vec<_> = hashes.into_iter().map(EngineHash::Int).collect();
            let event = if kind < 3 {
                Event::Removed(Removed { hashes, place: place() })
            } else {
                Event::Stored(Stored {
                    tokens: vec![token; hashes.len() * SIZE as usize],
                    extra_keys: ExtraKeys::Listed(vec![Vec::new(); hashes.len()]),
                    hashes,
                    parent: parent.map(EngineHash::Int),
                    block_size: SIZE,
                    lora: Lora::None,
                    place: place(),
                })
            };
            replica.apply(&translator.apply(&batch(vec![event])))?;
            replica.agrees(&translator)?;
            prop_assert!(translator.blocks() <= 9);
        }
    }
}

fn stored(parent: Option<u64>, hashes: &[u64]) -> Stored {
    Stored {
        hashes: hashes.iter().map(|hash| EngineHash::Int(*hash)).collect(),
        parent: parent.map(EngineHash::Int),
        tokens: hashes.iter().flat_map(|hash| [*hash as u32; SIZE as usize]).collect(),
        block_size: SIZE,
        lora: Lora::None,
        extra_keys: ExtraKeys::Listed(vec![Vec::new(); hashes.len()]),
        place: place(),
    }
}

fn removed(hashes: &[u64], place: Place) -> Event {
    Event::Removed(Removed { hashes: hashes.iter().map(|hash| EngineHash::Int(*hash)).collect(), place })
}

#[test]
fn only_the_main_group_on_the_accelerator_is_credited() {
    let mut translator = translator();
    let window = Place { group: 1, kind: Some(GroupKind::Partial), ..place() };
    let other_tier = Place { tier: Tier::Other, ..place() };
    translator.apply(&batch(vec![
        Event::Stored(Stored { place: window.clone(), ..stored(None, &[7, 8]) }),
        Event::Stored(Stored { place: other_tier.clone(), ..stored(None, &[9]) }),
        Event::Stored(stored(None, &[1, 2])),
        // The same hashes in another group and in another tier, gone there alone.
        removed(&[1], window),
        removed(&[1, 2], other_tier),
    ]));
    let counts = translator.counts();
    assert_eq!((translator.blocks(), counts.other_group, counts.other_tier), (2, 3, 3));
    assert!(translator.is_hybrid());
}

#[test]
fn what_cannot_be_compared_ends_the_chain() {
    let absent = |tokens: [u32; 8]| Stored {
        tokens: tokens.to_vec(),
        extra_keys: ExtraKeys::Absent,
        ..stored(None, &[1, 2])
    };
    for (event, visible) in [
        (absent([5, 5, 5, 5, 6, 6, 6, 6]), 2),
        (absent([5, 5, 5, 5, 6, 99, 6, 6]), 1),
        (absent([5, 99, 5, 5, 6, 6, 6, 6]), 0),
        (Stored { lora: Lora::Unnamed, ..stored(None, &[1, 2]) }, 0),
        (Stored { lora: Lora::Named("a".into()), ..stored(None, &[1, 2]) }, 2),
        (Stored { block_size: SIZE * 2, ..stored(None, &[1, 2]) }, 0),
        (Stored { tokens: vec![1; 20], ..stored(None, &[1, 2]) }, 0),
        (Stored { extra_keys: ExtraKeys::Listed(vec![Vec::new()]), ..stored(None, &[1, 2]) }, 0),
    ] {
        let config = Config { block_size: SIZE, placeholders: vec![99], ..Config::default() };
        let mut translator = Translator::new(config);
        translator.apply(&batch(vec![Event::Stored(event.clone())]));
        assert_eq!(translator.blocks(), visible, "{event:?}");
        assert_eq!(translator.counts().uncredited > 0, visible < 2, "{event:?}");
        translator.apply(&batch(vec![removed(&[2, 1], place())]));
        assert_eq!((translator.blocks(), translator.counts().unknown_removed), (0, 0), "{event:?}");
    }
}

#[test]
fn salts_and_adapters_are_roots_of_their_own() {
    let keyed = |stored: Stored| {
        let mut translator = translator();
        translator.apply(&batch(vec![Event::Stored(stored)]));
        translator.runs().into_iter().flat_map(|run| run.keys).next()
    };
    let text = |text: &str| ExtraKey::Text(text.into());
    let expected = |lora_name, cache_salt| {
        let root = KeyScope { secret: "", lora_name, cache_salt }.root();
        Some(extend_key(root, &[1; SIZE as usize], []))
    };
    let with = |lora: Lora, keys: Vec<ExtraKey>| Stored {
        lora,
        extra_keys: ExtraKeys::Listed(vec![keys]),
        ..stored(None, &[1])
    };
    let adapter = || Lora::Named("a".into());
    assert_eq!(keyed(with(Lora::None, vec![])), expected("", ""));
    assert_eq!(keyed(with(Lora::None, vec![text("s")])), expected("", "s"));
    assert_eq!(keyed(with(adapter(), vec![text("a")])), expected("a", ""));
    assert_eq!(keyed(with(adapter(), vec![text("a"), text("s")])), expected("a", "s"));
    assert_eq!(keyed(with(Lora::None, vec![text("s"), text("t")])), None, "two salts are none");
}

#[test]
fn lost_history_shows_as_coverage() {
    let covers = |translator: &Translator, share: f64| {
        assert!((translator.coverage() - share).abs() < 1e-9, "{} is {share}", translator.coverage());
    };
    let mut translator = translator();
    translator.apply(&batch(vec![Event::Stored(stored(None, &[1, 2]))]));
    covers(&translator, 1.0);
    assert_eq!(translator.forget(Some(4)), [Change::Cleared]);
    covers(&translator, 0.0);
    // Two blocks whose parent was stored before: of a pool of 4, at most 2 others are unknown.
    assert_eq!(translator.apply(&batch(vec![Event::Stored(stored(Some(2), &[3, 4]))])), []);
    covers(&translator, 0.0);
    // What was unknown goes away, then the parents come again: everything is known.
    translator.apply(&batch(vec![removed(&[2, 1], place())]));
    assert_eq!(translator.apply(&batch(vec![Event::Stored(stored(None, &[1, 2]))])).len(), 1);
    assert_eq!(translator.blocks(), 4);
    covers(&translator, 1.0);
}

/// A prompt of 99s (placeholders) and other tokens, and where its media lie.
struct Picture {
    tokens: Vec<u32>,
    /// Id, first token, range's length.
    media: Vec<(&'static str, usize, usize)>,
}

impl Picture {
    /// Stores some of its blocks in one event, as vLLM tells of them.
    fn stored(&self, blocks: std::ops::Range<usize>) -> Event {
        let size = SIZE as usize;
        let extra = |block: usize| {
            let overlaps = self.media.iter().filter(move |(_, start, length)| {
                *start < (block + 1) * size && start + length > block * size
            });
            let key = |(id, start, _): &(&str, usize, usize)| ExtraKey::Media {
                id: (*id).into(),
                offset: *start as i64 - (block * size) as i64,
            };
            overlaps.map(key).collect::<Vec<_>>()
        };
        Event::Stored(Stored {
            hashes: blocks.clone().map(|block| EngineHash::Int(block as u64 + 1)).collect(),
            parent: (blocks.start > 0).then_some(EngineHash::Int(blocks.start as u64)),
            tokens: self.tokens[blocks.start * size..blocks.end * size].to_vec(),
            extra_keys: ExtraKeys::Listed(blocks.clone().map(extra).collect()),
            ..stored(None, &[])
        })
    }

    fn blocks(&self) -> usize {
        self.tokens.len() / SIZE as usize
    }

    /// The keys of its blocks.
    fn keys(&self) -> Vec<BlockKey> {
        let spans = self.media.iter().map(|(id, start, length)| MediaSpan {
            key: MediaId::new(id).key(),
            start: *start as u32,
            len: *length as u32,
        });
        block_keys(KeyScope::default().root(), &self.tokens, &spans.collect::<Vec<_>>(), SIZE)
    }
}

/// Lists the media that a sequence of batches tells of: id, index of the first block, tokens.
fn told(picture: &Picture, cuts: &[usize]) -> Vec<(String, usize, u32)> {
    let config = Config { block_size: SIZE, placeholders: vec![99], ..Config::default() };
    let mut translator = Translator::new(config);
    let keys = picture.keys();
    let mut told = Vec::new();
    for cut in cuts.windows(2) {
        for change in translator.apply(&batch(vec![picture.stored(cut[0]..cut[1])])) {
            let Change::Stored { media, .. } = change else { continue };
            told.extend(media.into_iter().map(|run| {
                let first = keys.iter().position(|key| *key == run.first_key).unwrap();
                (run.id.as_str().to_owned(), first, run.tokens)
            }));
        }
    }
    told
}

#[test]
fn media_are_told_once_their_end_is_seen() {
    let two = Picture {
        tokens: vec![1, 99, 99, 99, 99, 99, 2, 99, 99, 99, 99, 99, 3, 3, 3, 3],
        media: vec![("a", 1, 5), ("b", 7, 5)],
    };
    let (a, b) = (("a".to_owned(), 0, 5), ("b".to_owned(), 1, 5));
    assert_eq!(told(&two, &[0, 3]), slice::from_ref(&a), "b may go on in the next block");
    assert_eq!(told(&two, &[0, 3, 4]), [a.clone(), b.clone()], "the next block does not name b");
    assert_eq!(told(&two, &[0, 1, 2, 3, 4]), [a, b], "however the blocks are stored");
    // Rows with a token between them: the blocks that name the item say how far it goes.
    let rows = Picture {
        tokens: vec![1, 99, 99, 5, 99, 99, 5, 99, 99, 5, 2, 2, 2, 2, 2, 2],
        media: vec![("rows", 1, 9)],
    };
    assert_eq!(told(&rows, &[0, 4]), [("rows".to_owned(), 0, 8)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// However a prompt is cut into events, each image of placeholders alone is told once, by its length.
    #[test]
    fn images_are_measured_across_events(
        items in prop::collection::vec((0_usize..6, 1_usize..30), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let names = ["a", "b", "c", "d"];
        let mut picture = Picture { tokens: vec![1], media: Vec::new() };
        for (name, (text, length)) in names.iter().zip(&items) {
            picture.tokens.extend(std::iter::repeat_n(2, *text));
            picture.media.push((name, picture.tokens.len(), *length));
            picture.tokens.extend(std::iter::repeat_n(99, *length));
        }
        picture.tokens.extend(std::iter::repeat_n(3, 2 * SIZE as usize));
        let blocks = picture.blocks();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(blocks)).collect();
        cuts.extend([0, blocks]);
        cuts.sort_unstable();
        cuts.dedup();
        let expected: Vec<_> = picture.media.iter().map(|(id, start, length)| {
            ((*id).to_owned(), start / SIZE as usize, *length as u32)
        }).collect();
        prop_assert_eq!(told(&picture, &cuts), expected, "cut at {:?}", cuts);
    }
}
