//! Cuts changes into deltas that fit on the bus; the same changes are always cut the same way.

use membership::{Change, MediaRun};

/// How much one delta carries at most, counted in keys; 8 bytes each on the wire.
pub(super) const KEYS_MAX: usize = 16_384;
/// What a media run weighs beside a key: an id of 64 characters and its numbers.
const MEDIA_KEYS: usize = 16;

/// Cuts changes, in order, into parts of at most `keys_max` keys.
pub(super) fn split(changes: Vec<Change>, keys_max: usize) -> Vec<Vec<Change>> {
    let keys_max = keys_max.max(1);
    let mut parts = Vec::new();
    let (mut part, mut room) = (Vec::new(), keys_max);
    for change in changes {
        let mut rest = Some(change);
        while let Some(change) = rest.take() {
            let (head, tail) = cut(change, room);
            if let Some(head) = head {
                room = room.saturating_sub(weight(&head));
                part.push(head);
            }
            if tail.is_some() || room == 0 {
                if !part.is_empty() {
                    parts.push(std::mem::take(&mut part));
                }
                room = keys_max;
            }
            rest = tail;
        }
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

fn weight(change: &Change) -> usize {
    match change {
        Change::Stored { keys, media, .. } => keys.len() + media.len() * MEDIA_KEYS,
        Change::Removed { keys } => keys.len(),
        Change::Cleared => 1,
    }
}

/// Cuts a change behind its first `room` keys; media go with the key they begin at.
fn cut(change: Change, room: usize) -> (Option<Change>, Option<Change>) {
    if room == 0 {
        return (None, Some(change));
    }
    match change {
        Change::Removed { mut keys } if keys.len() > room => {
            let tail = keys.split_off(room);
            (Some(Change::Removed { keys }), Some(Change::Removed { keys: tail }))
        }
        Change::Stored { parent, mut keys, media } if keys.len() > room => {
            let tail = keys.split_off(room);
            let (ours, theirs): (Vec<MediaRun>, Vec<MediaRun>) =
                media.into_iter().partition(|item| keys.contains(&item.first_key));
            let tail = Change::Stored { parent: keys.last().copied(), keys: tail, media: theirs };
            (Some(Change::Stored { parent, keys, media: ours }), Some(tail))
        }
        whole @ (Change::Removed { .. } | Change::Stored { .. } | Change::Cleared) => (Some(whole), None),
    }
}

#[cfg(test)]
mod tests {
    use identity::{BlockKey, MediaId};
    use proptest::prelude::*;

    use super::*;

    fn keys(range: std::ops::Range<u64>) -> Vec<BlockKey> {
        range.map(BlockKey::new).collect()
    }

    #[test]
    fn runs_are_cut_behind_their_parents() {
        let media = MediaRun { id: MediaId::new("m"), first_key: BlockKey::new(6), tokens: 3 };
        let stored = Change::Stored { parent: None, keys: keys(0..8), media: vec![media.clone()] };
        let part = |parent: Option<u64>, range, media| {
            vec![Change::Stored { parent: parent.map(BlockKey::new), keys: keys(range), media }]
        };
        assert_eq!(
            split(vec![stored], 5),
            [part(None, 0..5, vec![]), part(Some(4), 5..8, vec![media])],
            "media go with their key"
        );
        assert_eq!(split(Vec::new(), 5), Vec::<Vec<Change>>::new());
    }

    proptest! {
        #[test]
        fn parts_are_bounded_and_lose_nothing(lengths in prop::collection::vec((any::<bool>(), 0_u64..40), 0..12)) {
            let change = |(stored, length): (bool, u64)| {
                let keys = keys(0..length);
                if stored { Change::Stored { parent: None, keys, media: Vec::new() } } else { Change::Removed { keys } }
            };
            let changes: Vec<_> = lengths.into_iter().map(change).collect();
            let count = |changes: &[Change]| changes.iter().map(weight).sum::<usize>();
            let parts = split(changes.clone(), 7);
            prop_assert!(parts.iter().all(|part| count(part) <= 7));
            prop_assert_eq!(parts.iter().map(|part| count(part)).sum::<usize>(), count(&changes));
        }
    }
}
