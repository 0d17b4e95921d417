use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::block_hash::{BlockHash, MediaRange, Scope};
use crate::kv_event::Stored;
use crate::reply::{Reply, ReplyLimits};
use crate::vocabulary::Vocabulary;

const LIMITS: Limits =
    Limits { block_size: 4, blocks: 64, running_max: 8, step_tokens_max: 64, encoder_tokens_max: 100 };

fn sequence(prompt: impl IntoIterator<Item = u32>, tokens_max: u32) -> NewSequence {
    let words = (1000..1064).map(|id| (id, " w".into()));
    let limits = ReplyLimits { tokens_max, ..ReplyLimits::default() };
    let prompt: Vec<u32> = prompt.into_iter().collect();
    let seed =
        prompt.iter().fold(7, |seed: u64, &token| seed.wrapping_mul(31).wrapping_add(u64::from(token)));
    NewSequence {
        reply: Reply::new(Arc::new(Vocabulary::from_words(words, None)), seed, limits),
        prompt,
        scope: Scope::default(),
        hashes: Vec::new(),
        read_cache: true,
        session_id: None,
    }
}

/// Runs one step and returns its events and outputs.
fn step(scheduler: &mut Scheduler) -> (Vec<KvEvent>, Vec<Output>) {
    scheduler.schedule();
    let outputs = scheduler.complete();
    (scheduler.take_events(), outputs)
}

/// Runs to the end and returns each step's events, empty ones left out, and cached tokens by sequence.
fn run(scheduler: &mut Scheduler) -> (Vec<Vec<KvEvent>>, HashMap<SequenceId, u32>) {
    let (mut batches, mut cached) = (Vec::new(), HashMap::new());
    while !scheduler.is_idle() {
        let (events, outputs) = step(scheduler);
        batches.extend(Some(events).filter(|events| !events.is_empty()));
        cached.extend(outputs.iter().map(|output| (output.id, output.cached_tokens)));
    }
    assert_eq!(scheduler.usage(), 0.0, "blocks are lost");
    (batches, cached)
}

fn stored(event: &KvEvent) -> &Stored {
    let KvEvent::Stored(stored) = event else { panic!("{event:?} stores nothing") };
    stored
}

/// Blocks stored by each event of each batch.
fn shape(batches: &[Vec<KvEvent>]) -> Vec<Vec<usize>> {
    batches.iter().map(|batch| batch.iter().map(|event| stored(event).hashes.len()).collect()).collect()
}

#[test]
fn only_new_full_blocks_are_told_and_a_full_hit_tells_nothing() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.submit(0, sequence(0..11, 1));
    let (first, cached) = run(&mut scheduler);
    assert_eq!((shape(&first), cached[&0]), (vec![vec![2]], 0));
    assert_eq!(stored(&first[0][0]).tokens, (0..8).collect::<Vec<u32>>());
    scheduler.submit(1, sequence(0..11, 1));
    assert_eq!(run(&mut scheduler), (vec![], HashMap::from([(1, 8)])));
    scheduler.submit(2, sequence((0..8).chain(50..60), 1));
    let (tail, cached) = run(&mut scheduler);
    assert_eq!((shape(&tail), cached[&2]), (vec![vec![2]], 8));
    assert_eq!(stored(&tail[0][0]).parent, stored(&first[0][0]).hashes.last().copied());
}

#[test]
fn the_last_token_is_computed_even_if_its_block_is_cached() {
    let mut scheduler = Scheduler::new(LIMITS);
    let mut store = |id| {
        scheduler.submit(id, sequence(0..8, 1));
        let (batches, cached) = run(&mut scheduler);
        (shape(&batches), cached[&id])
    };
    assert_eq!(store(0), (vec![vec![2]], 0));
    assert_eq!(store(1), (vec![vec![1]], 4), "the last block is computed and stored once more");
}

#[test]
fn a_long_prompt_is_told_step_by_step() {
    let mut scheduler = Scheduler::new(Limits { step_tokens_max: 10, ..LIMITS });
    scheduler.submit(0, sequence(0..35, 1));
    let (batches, _) = run(&mut scheduler);
    assert_eq!(shape(&batches), [[2], [3], [2], [1]]);
    for pair in batches.windows(2) {
        assert_eq!(stored(&pair[1][0]).parent, stored(&pair[0][0]).hashes.last().copied());
    }
}

#[test]
fn blocks_filled_by_generation_are_told_one_by_one() {
    let mut scheduler = Scheduler::new(Limits { block_size: 32, ..LIMITS });
    scheduler.submit(0, sequence(0..10, 80));
    assert_eq!(shape(&run(&mut scheduler).0), [[1], [1]]);
    scheduler.submit(1, sequence(100..110, 22));
    assert_eq!(shape(&run(&mut scheduler).0), Vec::<Vec<usize>>::new(), "the last token is never computed");
}

#[test]
fn equal_prompts_at_once_share_blocks_but_equal_generations_are_copies() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.submit(0, sequence(0..9, 5));
    scheduler.submit(1, sequence(0..9, 5));
    let (batches, cached) = run(&mut scheduler);
    assert_eq!(cached, HashMap::from([(0, 0), (1, 8)]));
    assert_eq!(shape(&batches), [vec![2], vec![1, 1]]);
    assert_eq!(batches[1][0], batches[1][1]);
}

#[test]
fn an_evicted_block_is_told_before_what_displaced_it_and_tails_go_first() {
    let mut scheduler = Scheduler::new(Limits { blocks: 4, ..LIMITS });
    scheduler.submit(0, sequence(0..13, 1));
    let (first, _) = run(&mut scheduler);
    let hashes = stored(&first[0][0]).hashes.clone();
    scheduler.submit(1, sequence(50..62, 1));
    let (second, _) = run(&mut scheduler);
    let KvEvent::Stored(new) = &second[0][2] else { panic!("{:?}", second[0]) };
    let removed = [KvEvent::Removed(hashes[2]), KvEvent::Removed(hashes[1])];
    assert_eq!((&second[0][..2], new.hashes.len()), (&removed[..], 3));
}

#[test]
fn who_gets_no_block_for_the_next_token_starts_again_later() {
    let mut scheduler = Scheduler::new(Limits { blocks: 8, ..LIMITS });
    scheduler.submit(0, sequence(0..12, 12));
    scheduler.submit(1, sequence(100..112, 12));
    let (_, cached) = run(&mut scheduler);
    assert_eq!(scheduler.totals().preemptions, 1);
    assert_eq!(cached, HashMap::from([(0, 0), (1, 0)]), "a second admission doesn't count as a hit");
    assert_eq!(scheduler.totals().generation_tokens, 24);
}

#[test]
fn who_does_not_fit_waits_and_holds_up_those_behind() {
    let mut scheduler = Scheduler::new(Limits { blocks: 8, ..LIMITS });
    for (id, prompt) in [(0, 0..20), (1, 100..120), (2, 200..203)] {
        scheduler.submit(id, sequence(prompt, 2));
    }
    let (_, outputs) = step(&mut scheduler);
    assert_eq!(outputs.iter().map(|output| output.id).collect::<Vec<_>>(), [0]);
    assert_eq!((scheduler.running(), scheduler.waiting()), (1, 2));
    let (_, cached) = run(&mut scheduler);
    assert_eq!(cached.len(), 3);
}

#[test]
fn no_more_sequences_run_than_allowed() {
    let mut scheduler = Scheduler::new(Limits { running_max: 2, ..LIMITS });
    for id in 0..5 {
        scheduler.submit(id, sequence([u32::try_from(id).unwrap(); 3], 3));
    }
    let mut most = 0;
    while !scheduler.is_idle() {
        scheduler.schedule();
        most = most.max(scheduler.running());
        scheduler.complete();
    }
    assert_eq!(most, 2);
}

#[test]
fn an_abandoned_sequence_gives_its_blocks_back() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.submit(0, sequence(0..30, 100));
    scheduler.submit(1, sequence(100..130, 100));
    step(&mut scheduler);
    assert!(scheduler.usage() > 0.2);
    scheduler.abort(|id| id == 0);
    assert_eq!(scheduler.running(), 1);
    scheduler.abort(|_| true);
    assert!(scheduler.is_idle());
    assert_eq!((scheduler.usage(), scheduler.totals().aborted), (0.0, 2));
}

#[test]
fn a_reset_is_told_with_the_next_batch_and_refused_while_blocks_are_in_use() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.submit(0, sequence(0..9, 2));
    step(&mut scheduler);
    assert!(!scheduler.reset_prefix_cache());
    run(&mut scheduler);
    assert!(scheduler.reset_prefix_cache());
    scheduler.submit(1, sequence(0..9, 1));
    let (events, outputs) = step(&mut scheduler);
    assert_eq!((&events[0], events.len(), outputs[0].cached_tokens), (&KvEvent::Cleared, 2, 0));
}

#[test]
fn who_must_not_read_the_cache_computes_and_stores_everything_again() {
    let mut scheduler = Scheduler::new(LIMITS);
    scheduler.submit(0, sequence(0..9, 1));
    run(&mut scheduler);
    scheduler.submit(1, NewSequence { read_cache: false, ..sequence(0..9, 1) });
    let (batches, cached) = run(&mut scheduler);
    assert_eq!((shape(&batches), cached[&1]), (vec![vec![2]], 0));
}

#[test]
fn an_image_is_encoded_when_its_tokens_come_and_not_if_they_are_cached() {
    let mut scheduler = Scheduler::new(Limits { step_tokens_max: 8, ..LIMITS });
    let with_image = |identity: &str| {
        let media = [MediaRange { identity: identity.into(), offset: 10, len: 9 }];
        NewSequence { scope: Scope { media: media.into(), salt: None }, ..sequence(0..22, 1) }
    };
    let mut work = |id, identity| {
        scheduler.submit(id, with_image(identity));
        let mut encoded = Vec::new();
        while !scheduler.is_idle() {
            encoded.push(scheduler.schedule().encode_tokens);
            scheduler.complete();
        }
        encoded
    };
    assert_eq!(work(0, "A"), [0, 9, 0]);
    assert_eq!(work(1, "A"), [0], "all of it is cached but the tail");
    assert_eq!(work(2, "B"), [9, 0], "tokens before the image are cached");
    assert_eq!(scheduler.totals().encoded_items, 2);
}

/// What a reader of the events knows: how many copies there are of each block.
#[derive(Debug, Default)]
struct Mirror(HashMap<BlockHash, u32>);

impl Mirror {
    fn apply(&mut self, event: &KvEvent) {
        match event {
            KvEvent::Stored(stored) => {
                assert!(
                    stored.parent.is_none_or(|parent| self.0.contains_key(&parent)),
                    "a parent is unknown"
                );
                stored.hashes.iter().for_each(|&hash| *self.0.entry(hash).or_default() += 1);
            }
            KvEvent::Removed(hash) => {
                let copies = self.0.get_mut(hash).expect("a block is removed that was not stored");
                *copies -= 1;
                if *copies == 0 {
                    self.0.remove(hash);
                }
            }
            KvEvent::Cleared => self.0.clear(),
        }
    }

    fn cached_tokens(&self, prompt: &[u32], block_size: u32) -> u32 {
        let mut parent = BlockHash::root();
        let mut tokens = 0;
        let whole = prompt[..prompt.len() - 1].chunks_exact(block_size as usize);
        for block in whole {
            parent = Scope::default().hash(&parent, tokens, block);
            if !self.0.contains_key(&parent) {
                break;
            }
            tokens += block_size;
        }
        tokens
    }
}

proptest! {
    #[test]
    fn events_predict_every_hit(
        prompts in prop::collection::vec((0_u32..4, 1_usize..40, 1_u32..20), 1..60),
        blocks in 16_u32..40,
        step_tokens_max in 5_u32..50,
    ) {
        let mut scheduler = Scheduler::new(Limits { blocks, step_tokens_max, ..LIMITS });
        let mut mirror = Mirror::default();
        for (id, (family, len, reply)) in (0..).zip(prompts) {
            let prompt: Vec<u32> = (0..).map(|i| if i < 13 { i } else { family * 100 + i }).take(len).collect();
            let expected = mirror.cached_tokens(&prompt, LIMITS.block_size);
            scheduler.submit(id, sequence(prompt, reply));
            let (batches, cached) = run(&mut scheduler);
            prop_assert_eq!(cached[&id], expected);
            batches.iter().flatten().for_each(|event| mirror.apply(event));
            let known: HashSet<_> = mirror.0.keys().copied().collect();
            prop_assert_eq!(known.len(), scheduler.cache.pool.cached_hashes());
            prop_assert!(known.iter().all(|hash| scheduler.cache.pool.lookup(hash).is_some()));
        }
    }

    #[test]
    fn crowds_end_and_lose_nothing(
        jobs in prop::collection::vec((0_u32..3, 1_usize..30, 1_u32..30, any::<bool>()), 1..40),
        blocks in 15_u32..30,
        running_max in 1_u32..6,
    ) {
        let mut scheduler = Scheduler::new(Limits { blocks, running_max, ..LIMITS });
        let mut mirror = Mirror::default();
        let mut left: HashMap<SequenceId, u32> = HashMap::new();
        let mut doomed = HashSet::new();
        for (id, (family, len, reply, abandoned)) in (0..).zip(jobs) {
            scheduler.submit(id, sequence((0..).map(|i| family * 50 + i / 3).take(len), reply));
            left.insert(id, reply);
            doomed.extend(abandoned.then_some(id));
        }
        for steps in 0_u32.. {
            if scheduler.is_idle() {
                break;
            }
            prop_assert!(steps < 10_000, "the crowd never ends");
            if steps == 5 {
                scheduler.abort(|id| doomed.contains(&id));
                left.retain(|id, _| !doomed.contains(id));
            }
            let (events, outputs) = step(&mut scheduler);
            prop_assert!(steps < 5 || outputs.iter().all(|output| !doomed.contains(&output.id)));
            events.iter().for_each(|event| mirror.apply(event));
            for output in outputs {
                let tokens = left.get_mut(&output.id).unwrap();
                *tokens -= 1;
                prop_assert_eq!(*tokens == 0, output.emission.finish.is_some());
                if *tokens == 0 {
                    left.remove(&output.id);
                }
            }
        }
        prop_assert!(left.is_empty());
        prop_assert_eq!(scheduler.usage(), 0.0);
        prop_assert_eq!(mirror.0.len(), scheduler.cache.pool.cached_hashes());
    }
}
