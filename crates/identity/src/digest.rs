//! The digest by which an agent and its replicas prove that they hold the same set of keys.

use crate::key::BlockKey;

/// How many buckets a digest has.
pub const BUCKETS: usize = 256;

/// Count and wrapping sum of the mixed keys that fall into one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Number of keys.
    pub count: u32,
    /// Wrapping sum of the mixed keys.
    pub sum: u64,
}

/// An order-free digest of a set of block keys.
///
/// Adding and taking a key cost one multiplication each; equal sets have equal digests whatever the order.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySetDigest {
    buckets: Box<[Bucket; BUCKETS]>,
}

impl Default for KeySetDigest {
    fn default() -> Self {
        Self { buckets: Box::new([Bucket::default(); BUCKETS]) }
    }
}

impl std::fmt::Debug for KeySetDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeySetDigest({:016x}, {} keys)", self.fold(), self.len())
    }
}

impl KeySetDigest {
    /// Rebuilds a digest from its buckets.
    #[must_use]
    pub fn from_buckets(buckets: [Bucket; BUCKETS]) -> Self {
        Self { buckets: Box::new(buckets) }
    }

    /// Returns the buckets, by the key's top eight bits.
    #[must_use]
    pub fn buckets(&self) -> &[Bucket; BUCKETS] {
        &self.buckets
    }

    /// Returns the bucket a key belongs to.
    #[must_use]
    pub const fn bucket_of(key: BlockKey) -> u8 {
        (key.get() >> 56) as u8
    }

    /// Adds a key that is not yet in the set.
    pub fn add(&mut self, key: BlockKey) {
        if let Some(bucket) = self.buckets.get_mut(usize::from(Self::bucket_of(key))) {
            bucket.count = bucket.count.wrapping_add(1);
            bucket.sum = bucket.sum.wrapping_add(mix(key));
        }
    }

    /// Takes a key that is in the set.
    pub fn take(&mut self, key: BlockKey) {
        if let Some(bucket) = self.buckets.get_mut(usize::from(Self::bucket_of(key))) {
            bucket.count = bucket.count.wrapping_sub(1);
            bucket.sum = bucket.sum.wrapping_sub(mix(key));
        }
    }

    /// Counts the keys in the set.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.buckets.iter().map(|bucket| u64::from(bucket.count)).sum()
    }

    /// Tells whether the set has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Folds the buckets into the 64 bits that a beat carries.
    #[must_use]
    pub fn fold(&self) -> u64 {
        self.buckets.iter().fold(0, |acc: u64, bucket| {
            let word = bucket.sum ^ u64::from(bucket.count).rotate_left(32);
            (acc.rotate_left(5) ^ word).wrapping_mul(MULTIPLIER)
        })
    }

    /// Lists the buckets in which two digests differ.
    pub fn differing<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u8> + 'a {
        (0_u8..=u8::MAX)
            .zip(self.buckets.iter().zip(other.buckets.iter()))
            .filter_map(|(index, (ours, theirs))| (ours != theirs).then_some(index))
    }
}

/// Odd multiplier of the `SplitMix64` finaliser (Steele, Lea, Flood 2014).
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

/// Spreads a key, so that sums of keys chosen by a client do not cancel by structure.
const fn mix(key: BlockKey) -> u64 {
    let word = key.get() ^ (key.get() >> 30);
    let word = word.wrapping_mul(MULTIPLIER);
    word ^ (word >> 27)
}
