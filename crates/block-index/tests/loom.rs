//! The protocol between writer and readers under a model checker: all interleavings with up to two preemptions (one
//! where a change has very many steps).
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p block-index --test loom --release
//! ```
//!
//! The index is the real one, with small tables. Each model makes an index, lets a writer change it while a reader looks
//! up, and asks that every holder's depth is one it had. Among the schedules are those in which the writer stands still
//! after any of its stores until the reader is done: a reader that waited for it would never end, which the checker
//! reports as too many branches.
#![cfg(loom)]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test may fail by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use block_index::{HolderId, Index, Limits, Matches, Reader};
use identity::BlockKey;

/// Keys of a prompt: distinct in both halves.
fn keys(from: u64, count: u64) -> Vec<BlockKey> {
    (from..from + count).map(|at| BlockKey::new((at + 1) << 58 | (at + 1) << 32 | (at + 1))).collect()
}

fn index(holders: usize) -> (Index, Reader, Vec<HolderId>) {
    let (mut index, reader) = block_index::new(Limits { holders_max: 64, blocks_max: 64 });
    let ids = (0..holders).map(|_| index.add_holder().unwrap()).collect();
    (index, reader, ids)
}

/// Depths of the holders, by one lookup.
fn depths(reader: &Reader, keys: &[BlockKey], ids: &[HolderId]) -> Vec<u32> {
    let mut found = Matches::new();
    reader.matches(keys, &mut found);
    ids.iter().map(|id| found.depth_of(*id)).collect()
}

/// Runs `change` beside a lookup of `asked`; each holder's depth must be in its list, and the lookup bounded.
fn check(
    make: impl Fn() -> (Index, Reader, Vec<HolderId>) + Sync + Send + 'static,
    change: impl Fn(&mut Index, &[HolderId]) + Sync + Send + Copy + 'static,
    asked: Vec<BlockKey>,
    allowed: Vec<Vec<u32>>,
    preemptions: usize,
) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 200_000;
    let schedules = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&schedules);
    model.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let (mut index, reader, ids) = make();
        let writing = {
            let ids = ids.clone();
            loom::thread::spawn(move || {
                change(&mut index, &ids);
                index
            })
        };
        let seen = depths(&reader, &asked, &ids);
        for (depth, allowed) in seen.iter().zip(&allowed) {
            assert!(allowed.contains(depth), "depth {depth}, not one of {allowed:?}");
        }
        // Each retry answers a change that the writer finished.
        assert!(reader.retries() <= 8, "{} retries", reader.retries());
        let index = writing.join().unwrap();
        index.check().unwrap();
    });
    println!("{} schedules", schedules.load(Ordering::Relaxed));
    assert!(schedules.load(Ordering::Relaxed) > 4, "the checker found nothing to reorder");
}

#[test]
fn a_store_is_seen_whole_or_not_at_all() {
    check(
        || index(1),
        |index, ids| {
            index.store(ids[0], None, &keys(0, 3)).unwrap();
        },
        keys(0, 3),
        vec![vec![0, 3]],
        2,
    );
}

#[test]
fn a_store_that_grows_a_run_is_seen_whole_or_not_at_all() {
    check(
        || {
            let (mut index, reader, ids) = index(2);
            index.store(ids[0], None, &keys(0, 2)).unwrap();
            index.store(ids[1], None, &keys(0, 1)).unwrap();
            (index, reader, ids)
        },
        |index, ids| {
            index.store(ids[0], Some(keys(0, 2)[1]), &keys(2, 2)).unwrap();
            index.store(ids[1], Some(keys(0, 1)[0]), &keys(1, 3)).unwrap();
        },
        keys(0, 4),
        vec![vec![2, 4], vec![1, 4]],
        2,
    );
}

/// Holders at different cutoffs, as many as a run takes without being split.
fn crowded() -> (Index, Reader, Vec<HolderId>) {
    let (mut index, reader, ids) = index(4);
    index.store(ids[0], None, &keys(0, 6)).unwrap();
    index.store(ids[1], None, &keys(0, 2)).unwrap();
    index.store(ids[2], None, &keys(0, 4)).unwrap();
    (index, reader, ids)
}

#[test]
fn a_split_changes_nobodys_depth() {
    check(
        crowded,
        |index, ids| {
            index.store(ids[3], None, &keys(0, 5)).unwrap();
            assert_eq!(index.stats().splits, 1);
        },
        keys(0, 6),
        vec![vec![6], vec![2], vec![4], vec![0, 5]],
        2,
    );
}

#[test]
fn a_merge_changes_nobodys_depth() {
    check(
        || {
            let (mut index, reader, ids) = crowded();
            index.store(ids[3], None, &keys(0, 5)).unwrap();
            (index, reader, ids)
        },
        |index, ids| {
            for id in &ids[1..4] {
                index.remove(*id, &keys(0, 5).into_iter().rev().collect::<Vec<_>>());
            }
            assert!(index.stats().merges > 0);
        },
        keys(0, 6),
        vec![vec![6], vec![0, 1, 2], vec![0, 1, 2, 3, 4], vec![0, 1, 2, 3, 4, 5]],
        1,
    );
}

#[test]
fn memory_that_a_reader_is_in_is_not_used_again() {
    check(
        || {
            let (mut index, reader, ids) = index(2);
            index.store(ids[0], None, &keys(0, 3)).unwrap();
            (index, reader, ids)
        },
        |index, ids| {
            index.clear(ids[0]);
            index.sweep(8);
            // The slots and the run of the first are free for the second as soon as nobody reads them.
            index.store(ids[1], None, &keys(10, 3)).unwrap();
            index.sweep(8);
        },
        keys(0, 3),
        vec![vec![0, 1, 2, 3], vec![0]],
        2,
    );
}

#[test]
fn a_removed_holder_is_gone_or_as_it_was() {
    check(
        || {
            let (mut index, reader, ids) = index(2);
            index.store(ids[0], None, &keys(0, 2)).unwrap();
            index.store(ids[1], None, &keys(0, 3)).unwrap();
            (index, reader, ids)
        },
        |index, ids| {
            index.remove_holder(ids[1]);
            for _ in 0..3 {
                index.sweep(8);
            }
        },
        keys(0, 3),
        vec![vec![2], vec![0, 3]],
        2,
    );
}
