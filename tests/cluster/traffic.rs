//! Mixed chat traffic from a seed: shared system prompts, several turns, none to four images a turn.

use serde_json::{Value, json};

use crate::images::Picture;

/// The pictures that occur; several share a size, so that only their bytes tell them apart.
pub(crate) const PICTURES: [Picture; 12] = [
    Picture { width: 56, height: 56, seed: 1 },
    Picture { width: 56, height: 56, seed: 2 },
    Picture { width: 112, height: 84, seed: 3 },
    Picture { width: 112, height: 84, seed: 4 },
    Picture { width: 84, height: 112, seed: 5 },
    Picture { width: 140, height: 140, seed: 6 },
    Picture { width: 140, height: 140, seed: 7 },
    Picture { width: 280, height: 196, seed: 8 },
    Picture { width: 280, height: 196, seed: 9 },
    Picture { width: 200, height: 300, seed: 10 },
    Picture { width: 28, height: 300, seed: 11 },
    Picture { width: 333, height: 77, seed: 12 },
];

const SYSTEMS: [&str; 4] = [
    "You answer as briefly as you can, in one sentence if that is enough, and you say when you do not know. You \
     never repeat the question. Numbers are written with digits, and units are those of the SI.",
    "You are the guide of a small museum. You speak of what can be seen: material, light, colour, composition; you \
     name no artist unless the label does, and you invite the visitor to look again at one particular detail.",
    "You check product photographs for a catalogue. Report the background, the number of objects, visible damage, \
     and whether the label can be read. Use short lines, one observation a line, most important first.",
    "Translate.",
];

const WORDS: [&str; 24] = [
    "lamp", "river", "seven", "quiet", "copper", "window", "north", "paper", "violet", "engine", "harbour",
    "thin", "garden", "signal", "eleven", "marble", "corner", "slow", "bridge", "amber", "letter", "stone",
    "open", "field",
];

/// A sequence of pseudo-random numbers (`SplitMix64`).
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

impl Seeded {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Draws from `0..bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    pub(crate) fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// Some conversations that take turns.
#[derive(Debug)]
pub(crate) struct Traffic {
    seeded: Seeded,
    picture_origin: Option<String>,
    conversations: Vec<Vec<Value>>,
    speaking: usize,
}

const CONVERSATIONS_MAX: usize = 12;
const MESSAGES_MAX: usize = 9;

impl Traffic {
    /// `picture_origin`: the server from which a quarter of the images come by URL.
    pub(crate) const fn new(seed: u64, picture_origin: Option<String>) -> Self {
        Self { seeded: Seeded::new(seed), picture_origin, conversations: Vec::new(), speaking: 0 }
    }

    /// Makes the next request's body.
    pub(crate) fn next_body(&mut self, model: &str) -> Value {
        let fresh = self.conversations.is_empty() || self.seeded.below(10) < 3;
        if fresh {
            let system = self.seeded.one_of(&SYSTEMS);
            if self.conversations.len() == CONVERSATIONS_MAX {
                let dropped = self.seeded.below(CONVERSATIONS_MAX);
                self.conversations.swap_remove(dropped);
            }
            self.conversations.push(vec![json!({"role": "system", "content": system})]);
            self.speaking = self.conversations.len() - 1;
        } else {
            self.speaking = self.seeded.below(self.conversations.len());
        }
        let turn = self.turn();
        let conversation = &mut self.conversations[self.speaking];
        if conversation.len() > MESSAGES_MAX {
            conversation.truncate(1);
        }
        conversation.push(turn);
        let mut body = json!({
            "model": model,
            "messages": conversation.clone(),
            "max_tokens": 1 + self.seeded.below(20),
            "temperature": 0,
        });
        if self.seeded.below(8) == 0 {
            body["cache_salt"] = json!(self.seeded.one_of(&["north", "south"]));
        }
        if self.seeded.below(2) == 0 {
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        body
    }

    /// Appends the answer to the conversation that spoke last.
    pub(crate) fn answered(&mut self, content: &str) {
        let speaking = self.speaking;
        self.conversations[speaking].push(json!({"role": "assistant", "content": content}));
    }

    fn turn(&mut self) -> Value {
        let images = if self.seeded.below(2) == 0 { 0 } else { 1 + self.seeded.below(4) };
        if images == 0 {
            return json!({"role": "user", "content": self.sentence()});
        }
        let mut parts = vec![json!({"type": "text", "text": self.sentence()})];
        for _ in 0..images {
            let picture = self.seeded.one_of(&PICTURES);
            let url = match &self.picture_origin {
                Some(origin) if self.seeded.below(4) == 0 => format!("{origin}{}", picture.path()),
                _ => picture.data_uri(),
            };
            parts.push(json!({"type": "image_url", "image_url": {"url": url}}));
            if self.seeded.below(2) == 0 {
                parts.push(json!({"type": "text", "text": self.sentence()}));
            }
        }
        json!({"role": "user", "content": parts})
    }

    fn sentence(&mut self) -> String {
        let words: Vec<&str> = (0..3 + self.seeded.below(30)).map(|_| self.seeded.one_of(&WORDS)).collect();
        words.join(" ")
    }
}
