//! The answer to a lookup.

use crate::limits::HolderId;
use crate::members::{FEW, NOBODY, Ones, PARTIAL, unpack};

/// Which holders have how much of a list of keys, in groups.
///
/// Made once and reused: a lookup allocates nothing once the buffers have grown to their use.
#[derive(Clone, Debug, Default)]
pub struct Matches {
    /// Bits of holders, `width` words for each group that has them.
    pub(crate) words: Vec<u64>,
    pub(crate) ids: Vec<HolderId>,
    /// Shallowest first.
    groups: Vec<Stored>,
    pub(crate) width: usize,
    alive: Alive,
}

/// Holders that have the same depth.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    /// How many of the keys they have, from the first; at least 1.
    pub depth: u32,
    /// The holders; at least one.
    pub holders: Holders<'a>,
}

/// A set of holders in an answer.
#[derive(Clone, Copy, Debug)]
pub struct Holders<'a> {
    bits: &'a [u64],
    ids: &'a [HolderId],
}

#[derive(Clone, Copy, Debug)]
struct Stored {
    depth: u32,
    bits: bool,
    from: usize,
    len: usize,
}

/// Holders that have everything up to here.
#[derive(Clone, Copy, Debug)]
enum Alive {
    Bits { from: usize },
    Few { ids: [HolderId; FEW], len: usize },
}

impl Default for Alive {
    fn default() -> Self {
        Self::Few { ids: [HolderId(0); FEW], len: 0 }
    }
}

/// Words of holders up to which sets are kept as bits even when they are small.
const NARROW: usize = 2;

/// What was taken in of a run's holders.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken {
    /// All of them, in words.
    Few([u32; FEW]),
    /// Bits and words.
    Many(TakenMany),
}

/// Bits in `words` from `from` on, and words of partial holders.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenMany {
    pub(crate) from: usize,
    pub(crate) partial: [u32; PARTIAL],
}

impl Matches {
    /// Makes an empty answer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists the groups, deepest first; no holder is in two.
    #[must_use]
    pub fn groups(&self) -> impl DoubleEndedIterator<Item = Group<'_>> + ExactSizeIterator + Clone {
        self.groups.iter().rev().map(|group| Group { depth: group.depth, holders: self.holders(group) })
    }

    /// Returns the greatest depth that any holder has, 0 if none has the first key.
    #[must_use]
    pub fn deepest(&self) -> u32 {
        self.groups.last().map_or(0, |group| group.depth)
    }

    /// Returns how many of the keys a holder has, from the first.
    #[must_use]
    pub fn depth_of(&self, holder: HolderId) -> u32 {
        self.groups().find(|group| group.holders.contains(holder)).map_or(0, |group| group.depth)
    }

    /// Lists all holders that have the first key, with their depths, deepest first.
    pub fn iter(&self) -> impl Iterator<Item = (HolderId, u32)> + Clone {
        self.groups().flat_map(|group| group.holders.iter().map(move |holder| (holder, group.depth)))
    }

    /// Calls `each` with every holder that has the first key and its depth: [`Matches::iter`] at its quickest.
    pub fn for_each(&self, mut each: impl FnMut(HolderId, u32)) {
        for group in self.groups() {
            group.holders.for_each(|holder| each(holder, group.depth));
        }
    }

    /// Tells whether no holder has the first key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn holders(&self, group: &Stored) -> Holders<'_> {
        let range = group.from..group.from + group.len;
        if group.bits {
            Holders { bits: self.words.get(range).unwrap_or_default(), ids: &[] }
        } else {
            Holders { bits: &[], ids: self.ids.get(range).unwrap_or_default() }
        }
    }

    /// Begins an answer: so many words of present holders, taken from `active`.
    pub(crate) fn begin(&mut self, active: impl Iterator<Item = u64>) {
        self.words.clear();
        self.ids.clear();
        self.groups.clear();
        self.words.extend(active);
        self.width = self.words.len();
        self.alive = Alive::Bits { from: 0 };
    }

    /// Goes into a run after `base` keys, of which `depth` keys matched: those of `taken` go on, the others stay behind.
    pub(crate) fn enter(&mut self, taken: Taken, base: u32, depth: u32) {
        let mut behind = Behind::default();
        let next = match (taken, self.alive) {
            (Taken::Few(words), _) => self.enter_few(words, depth, &mut behind),
            (Taken::Many(many), Alive::Bits { from: before }) => {
                self.enter_bits(before, many, depth, &mut behind)
            }
            (Taken::Many(many), Alive::Few { ids, len }) => {
                let few = ids.get(..len).unwrap_or_default();
                let next = self.sift_few(few, many, depth, &mut behind);
                self.words.truncate(many.from);
                next
            }
        };
        self.leave_group(base);
        self.alive = next;
        self.groups_behind(&mut behind, base);
    }

    /// Ends an answer after `depth` keys.
    pub(crate) fn end(&mut self, depth: u32) {
        self.leave_group(depth);
        self.alive = Alive::default();
    }

    /// Tells whether nobody has everything up to here.
    pub(crate) fn is_over(&self) -> bool {
        match self.alive {
            Alive::Bits { from } => self.words.iter().skip(from).all(|word| *word == 0),
            Alive::Few { len, .. } => len == 0,
        }
    }

    fn enter_few(&mut self, words: [u32; FEW], depth: u32, behind: &mut Behind) -> Alive {
        if self.width <= NARROW {
            return self.enter_few_bits(words, depth, behind);
        }
        let mut next = [HolderId(0); FEW];
        let mut len = 0;
        for word in words.into_iter().filter(|word| *word != NOBODY) {
            let (holder, cutoff) = unpack(word);
            if cutoff == 0 || !self.take_alive(holder) {
                continue;
            }
            if cutoff < depth {
                behind.push(holder, cutoff);
            } else if let Some(place) = next.get_mut(len) {
                *place = holder;
                len += 1;
            }
        }
        Alive::Few { ids: next, len }
    }

    /// The same where there are so few holders in all that bits are the handier form.
    fn enter_few_bits(&mut self, words: [u32; FEW], depth: u32, behind: &mut Behind) -> Alive {
        let from = self.words.len();
        self.words.resize(from + self.width, 0);
        for word in words.into_iter().filter(|word| *word != NOBODY) {
            let (holder, cutoff) = unpack(word);
            if cutoff == 0 || !self.take_alive(holder) {
                continue;
            }
            if cutoff < depth {
                behind.push(holder, cutoff);
            } else if let Some(word) = self.words.get_mut(from + holder.index() / 64) {
                *word |= 1 << (holder.0 % 64);
            }
        }
        Alive::Bits { from }
    }

    fn enter_bits(&mut self, before: usize, many: TakenMany, depth: u32, behind: &mut Behind) -> Alive {
        let from = many.from;
        let (olds, news) = self.words.split_at_mut(from);
        let olds = olds.get_mut(before..before + self.width).unwrap_or_default();
        for (old, new) in olds.iter_mut().zip(news.iter_mut()) {
            let both = *old & *new;
            *old &= !*new;
            *new = both;
        }
        for word in many.partial.into_iter().filter(|word| *word != NOBODY) {
            let (holder, cutoff) = unpack(word);
            if cutoff == 0 || !self.take_alive(holder) {
                continue;
            }
            if cutoff < depth {
                behind.push(holder, cutoff);
            } else if let Some(word) = self.words.get_mut(from + holder.index() / 64) {
                *word |= 1 << (holder.0 % 64);
            }
        }
        Alive::Bits { from }
    }

    /// Sorts the few who got this far by what a run with many holders says of them.
    fn sift_few(&mut self, few: &[HolderId], many: TakenMany, depth: u32, behind: &mut Behind) -> Alive {
        let mut next = [HolderId(0); FEW];
        let mut len = 0;
        for holder in few {
            let word = self.words.get(many.from + holder.index() / 64).copied().unwrap_or(0);
            let whole = word >> (holder.0 % 64) & 1 == 1;
            let of_holder = |word: &&u32| **word != NOBODY && unpack(**word).0 == *holder;
            let cutoff = many.partial.iter().find(of_holder).map_or(0, |word| unpack(*word).1);
            if !whole && cutoff == 0 {
                continue;
            }
            self.take_alive(*holder);
            if !whole && cutoff < depth {
                behind.push(*holder, cutoff);
            } else if let Some(place) = next.get_mut(len) {
                *place = *holder;
                len += 1;
            }
        }
        Alive::Few { ids: next, len }
    }

    /// Takes a holder out of those alive; false if it is not among them.
    fn take_alive(&mut self, holder: HolderId) -> bool {
        match &mut self.alive {
            Alive::Bits { from } => {
                let index = holder.index() / 64;
                if index >= self.width {
                    return false;
                }
                let Some(word) = self.words.get_mut(*from + index) else { return false };
                let mask = 1 << (holder.0 % 64);
                let there = *word & mask != 0;
                *word &= !mask;
                there
            }
            Alive::Few { ids, len } => {
                let few = ids.get_mut(..*len).unwrap_or_default();
                let Some(at) = few.iter().position(|other| *other == holder) else { return false };
                few.swap(at, *len - 1);
                *len -= 1;
                true
            }
        }
    }

    /// Makes those still alive a group of this depth.
    fn leave_group(&mut self, depth: u32) {
        if depth == 0 {
            return;
        }
        let group = match self.alive {
            Alive::Bits { from } => {
                let bits = self.words.get(from..from + self.width).unwrap_or_default();
                if bits.iter().all(|word| *word == 0) {
                    return;
                }
                Stored { depth, bits: true, from, len: self.width }
            }
            Alive::Few { len: 0, .. } => return,
            Alive::Few { ids, len } => {
                let from = self.ids.len();
                self.ids.extend(ids.iter().take(len));
                Stored { depth, bits: false, from, len }
            }
        };
        self.groups.push(group);
    }

    /// Makes groups of those who have only a beginning of a run.
    fn groups_behind(&mut self, behind: &mut Behind, base: u32) {
        let holders = behind.sorted();
        let mut last = 0;
        for (holder, cutoff) in holders {
            let from = self.ids.len();
            self.ids.push(*holder);
            match self.groups.last_mut() {
                Some(group) if last == *cutoff => group.len += 1,
                _ => self.groups.push(Stored { depth: base + cutoff, bits: false, from, len: 1 }),
            }
            last = *cutoff;
        }
    }
}

/// Holders that have only a beginning of a run.
#[derive(Debug)]
struct Behind {
    holders: [(HolderId, u32); PARTIAL],
    len: usize,
}

impl Default for Behind {
    fn default() -> Self {
        Self { holders: [(HolderId(0), 0); PARTIAL], len: 0 }
    }
}

impl Behind {
    fn push(&mut self, holder: HolderId, cutoff: u32) {
        if let Some(place) = self.holders.get_mut(self.len) {
            *place = (holder, cutoff);
            self.len += 1;
        }
    }

    fn sorted(&mut self) -> &[(HolderId, u32)] {
        let holders = self.holders.get_mut(..self.len).unwrap_or_default();
        if holders.len() > 1 {
            holders.sort_unstable_by_key(|(_, cutoff)| *cutoff);
        }
        holders
    }
}

impl<'a> Holders<'a> {
    /// Lists the holders, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = HolderId> + Clone + use<'a> {
        let bits =
            self.bits.iter().zip((0_u32..).step_by(64)).flat_map(|(word, base)| Ones { word: *word, base });
        bits.chain(self.ids.iter().copied())
    }

    /// Calls `each` with every holder: [`Holders::iter`] at its quickest.
    pub fn for_each(&self, mut each: impl FnMut(HolderId)) {
        for (word, base) in self.bits.iter().zip((0_u32..).step_by(64)) {
            if *word == u64::MAX {
                (base..base + 64).for_each(|id| each(HolderId(id)));
            } else {
                Ones { word: *word, base }.for_each(&mut each);
            }
        }
        self.ids.iter().for_each(|holder| each(*holder));
    }

    /// Tells whether a holder is among them.
    #[must_use]
    pub fn contains(&self, holder: HolderId) -> bool {
        let word = self.bits.get(holder.index() / 64).copied().unwrap_or(0);
        word >> (holder.0 % 64) & 1 == 1 || self.ids.contains(&holder)
    }

    /// Counts the holders.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bits.iter().map(|word| word.count_ones() as usize).sum::<usize>() + self.ids.len()
    }

    /// Tells whether there is none; never so in a [`Group`].
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
