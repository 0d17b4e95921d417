//! The block keys of a recording's events, followed without the translator: the engine's hashes are only looked up.

use std::collections::{HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use identity::{BlockKey, KeyScope, MediaKey, extend_key};
use serde_json::Value;

/// What an engine has cached, by the router's names.
#[derive(Default)]
pub(crate) struct Cache {
    by_hash: HashMap<u64, BlockKey>,
    keys: HashSet<BlockKey>,
}

impl Cache {
    pub(crate) fn holds(&self, key: BlockKey) -> bool {
        self.keys.contains(&key)
    }

    /// Applies the batch in a recorded line of frames.
    pub(crate) fn apply(&mut self, line: &Value) {
        let payload = line["frames"].as_array().unwrap().last().unwrap().as_str().unwrap();
        let batch: Value = rmp_serde::from_slice(&STANDARD.decode(payload).unwrap()).unwrap();
        for event in batch[1].as_array().unwrap() {
            match event["type"].as_str().unwrap() {
                "BlockStored" => self.store(event),
                other => panic!("unexpected event {other}"),
            }
        }
    }

    fn store(&mut self, event: &Value) {
        let tokens: Vec<u32> =
            numbers(&event["token_ids"]).into_iter().map(|token| u32::try_from(token).unwrap()).collect();
        let size = usize::try_from(event["block_size"].as_u64().unwrap()).unwrap();
        let mut parent = event["parent_block_hash"].as_u64().map(|hash| self.by_hash[&hash]);
        for (index, hash) in numbers(&event["block_hashes"]).into_iter().enumerate() {
            let (media, salt) = extras(&event["extra_keys"][index]);
            let root =
                || KeyScope { cache_salt: salt.as_deref().unwrap_or_default(), ..KeyScope::default() }.root();
            let block = &tokens[index * size..(index + 1) * size];
            let key = extend_key(parent.unwrap_or_else(root), block, media);
            self.by_hash.insert(hash, key);
            self.keys.insert(key);
            parent = Some(key);
        }
    }
}

/// Splits a block's extra keys into media keys and the salt.
fn extras(extra: &Value) -> (Vec<u64>, Option<String>) {
    let (mut media, mut salt) = (Vec::new(), None);
    for entry in extra.as_array().into_iter().flatten() {
        match entry.as_str() {
            Some(text) => salt = Some(text.to_owned()),
            None => media.push(MediaKey::of(entry[0].as_str().unwrap()).get()),
        }
    }
    (media, salt)
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}
