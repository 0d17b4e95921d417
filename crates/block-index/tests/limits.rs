//! What is refused, what that leaves behind, and who outlives whom.

use block_index::{Branch, Index, Limits, Matches, Reader, Refused, Stored};
use identity::BlockKey;

fn keys(from: u64, count: u64) -> Vec<BlockKey> {
    (from..from + count).map(|at| BlockKey::new((at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect()
}

fn index(holders_max: u32, blocks_max: u32) -> (Index, Reader) {
    block_index::new(Limits { holders_max, blocks_max })
}

fn sweep(index: &mut Index) {
    for _ in 0..1_000 {
        if !index.sweep(100) {
            return;
        }
    }
}

#[test]
fn holders_beyond_the_limit_are_refused_until_one_is_swept() {
    let (mut index, _) = index(2, 100);
    let first = index.add_holder().unwrap();
    index.add_holder().unwrap();
    assert_eq!(index.add_holder(), Err(Refused::Holders { holders_max: 2 }));
    index.store(first, None, &keys(0, 3)).unwrap();
    index.remove_holder(first);
    assert_eq!(index.blocks(first), 0);
    assert_eq!(index.store(first, None, &keys(0, 3)), Err(Refused::NoHolder(first)));
    assert_eq!(index.add_holder(), Err(Refused::Holders { holders_max: 2 }));
    sweep(&mut index);
    assert_eq!(index.add_holder(), Ok(first));
    assert_eq!((index.blocks(first), index.stats().refused_holders), (0, 2));
}

#[test]
fn blocks_beyond_the_limit_are_refused_whole() {
    let (mut index, reader) = index(2, 10);
    let (one, two) = (index.add_holder().unwrap(), index.add_holder().unwrap());
    index.store(one, None, &keys(0, 8)).unwrap();
    // Known blocks are no new ones.
    assert_eq!(index.store(two, None, &keys(0, 8)), Ok(Stored { added: 8, fresh: 0 }));
    let last = keys(0, 8)[7];
    let refused = index.store(two, Some(last), &keys(8, 3));
    assert_eq!(refused, Err(Refused::Blocks { wanted: 3, blocks: 8, blocks_max: 10 }));
    index.check().unwrap();
    assert_eq!(index.store(two, Some(last), &keys(8, 2)), Ok(Stored { added: 2, fresh: 2 }));
    // Blocks that nobody has make room.
    index.clear(one);
    index.clear(two);
    assert_eq!(index.store(one, None, &keys(100, 10)), Ok(Stored { added: 10, fresh: 10 }));
    index.check().unwrap();
    let mut found = Matches::new();
    reader.matches(&keys(100, 10), &mut found);
    assert_eq!(found.depth_of(one), 10);
}

#[test]
fn a_second_parent_is_refused_counted_and_changes_nothing() {
    let (mut index, _) = index(2, 10_000);
    let (one, two) = (index.add_holder().unwrap(), index.add_holder().unwrap());
    index.store(one, None, &keys(0, 5)).unwrap();
    let other = keys(50, 1)[0];
    // After another parent, in the middle of a store, as a root, and twice in one store.
    let cases: [Vec<BlockKey>; 4] = [
        vec![other, keys(0, 5)[3]],
        [keys(60, 20), vec![keys(0, 5)[2]]].concat(),
        vec![keys(0, 5)[1]],
        vec![keys(70, 1)[0], keys(71, 1)[0], keys(70, 1)[0]],
    ];
    for (count, case) in cases.iter().enumerate() {
        let before = (index.blocks(two), index.stats().blocks);
        assert!(matches!(index.store(two, None, case), Err(Refused::SecondParent(_))), "{case:?}");
        assert_eq!((index.blocks(two), index.stats().blocks), before);
        assert_eq!(index.stats().second_parents, count as u64 + 1);
        index.check().unwrap();
    }
    assert_eq!(index.store(two, Some(other), &keys(51, 1)), Err(Refused::NoParent(other)));
}

#[test]
fn readers_outlive_the_writer() {
    let (mut index, reader) = index(20, 10_000);
    let ids: Vec<_> = (0..20).map(|_| index.add_holder().unwrap()).collect();
    for id in &ids {
        index.store(*id, None, &keys(0, 100 + u64::from(id.get()))).unwrap();
    }
    index.remove(ids[0], &keys(0, 100).into_iter().rev().collect::<Vec<_>>());
    drop(index);
    let mut found = Matches::new();
    reader.clone().matches(&keys(0, 200), &mut found);
    assert_eq!(found.depth_of(ids[7]), 107);
    assert_eq!(found.depth_of(ids[0]), 0);
    assert_eq!(found.iter().count(), 19);
}

#[test]
fn the_tree_shows_runs_before_what_continues_them() {
    let (mut index, _) = index(2, 10_000);
    let (one, two) = (index.add_holder().unwrap(), index.add_holder().unwrap());
    index.store(one, None, &keys(0, 5)).unwrap();
    index.store(two, None, &[&keys(0, 5)[..3], &keys(90, 2)].concat()).unwrap();
    let trunk = Branch {
        level: 0,
        depth: 0,
        first: keys(0, 1)[0],
        blocks: 5,
        holders: vec![(one, 5), (two, 3)],
        children: 1,
    };
    let twig =
        Branch { level: 1, depth: 3, first: keys(90, 1)[0], blocks: 2, holders: vec![(two, 2)], children: 0 };
    assert_eq!(index.tree(2, 10), vec![trunk.clone(), twig]);
    assert_eq!(index.tree(1, 10), vec![trunk.clone()]);
    assert_eq!(index.tree(9, 1), vec![trunk]);
    assert_eq!(index.tree(0, 10), vec![]);
}
