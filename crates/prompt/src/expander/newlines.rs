//! Merges newline tokens around images as vLLM does for Gemma 3, whose vocabulary has tokens for up to four newlines.
//!
//! The expansions begin and end with `\n\n`, which the engine joins with a newline token beside them, in three passes over
//! the whole prompt: `\n` + `\n\n`, `\n\n` + `\n`, `\n\n` + `\n\n`. Afterwards it looks for its items in the prompt with
//! each joined token split again, always the same way; an item that is not found so fails the request.

use crate::fallback::Fallback;
use crate::tokeniser::Tokeniser;

use super::Placed;

/// The vocabulary's tokens for one to four newlines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newlines([u32; 4]);

/// A token after merging, and the index of the first token that went into it.
#[derive(Clone, Copy, Debug)]
struct Merged {
    token: u32,
    from: usize,
}

impl Newlines {
    /// Finds the tokens; a vocabulary without one of them merges nothing.
    pub(super) fn of(tokeniser: &Tokeniser) -> Option<Self> {
        let id = |text| tokeniser.token_id(text);
        Some(Self([id("\n")?, id("\n\n")?, id("\n\n\n")?, id("\n\n\n\n")?]))
    }

    /// Merges newlines in a prompt that has media, and moves the media with them.
    pub(super) fn merge(self, mut placed: Placed) -> Placed {
        let Self([one, two, three, four]) = self;
        let tokens = placed.tokens.iter().enumerate().map(|(from, &token)| Merged { token, from }).collect();
        let merged = joined(tokens, [one, two], three);
        let merged = joined(merged, [two, one], three);
        let merged = joined(merged, [two, two], four);
        let offsets = self.offsets(&placed, &merged);
        placed.keyed = kept(&merged, placed.keyed, placed.tokens.len());
        placed.located = kept(&merged, placed.located, placed.tokens.len());
        placed.tokens = merged.into_iter().map(|merged| merged.token).collect();
        match offsets {
            Some(offsets) => {
                for (item, offset) in placed.media.iter_mut().zip(offsets) {
                    item.offset = offset;
                }
                let located = placed.located;
                placed.media.retain(|item| item.end() <= located);
            }
            None => {
                (placed.keyed, placed.located) = (0, 0);
                placed.media.clear();
                placed.fallback.get_or_insert(Fallback::MediaRefused);
            }
        }
        placed
    }

    /// Finds each item in the merged prompt, in order; `None` if one is not to be found, as then the engine fails.
    fn offsets(self, placed: &Placed, merged: &[Merged]) -> Option<Vec<usize>> {
        let Self([one, two, three, four]) = self;
        let mut split = Vec::with_capacity(merged.len());
        for (index, merged) in merged.iter().enumerate() {
            match merged.token {
                token if token == three => split.extend([(one, index), (two, index)]),
                token if token == four => split.extend([(two, index), (two, index)]),
                token => split.push((token, index)),
            }
        }
        let mut at = 0;
        let find = |item: &crate::prepared::PlacedMedia| {
            let wanted = placed.tokens.get(item.offset..item.end())?;
            let matches = |window: &[(u32, usize)]| window.iter().map(|(token, _)| token).eq(wanted);
            let skipped = split.get(at..)?.windows(wanted.len().max(1)).position(matches)?;
            let (_, offset) = split.get(at + skipped)?;
            at += skipped + wanted.len();
            Some(*offset)
        };
        placed.media.iter().map(find).collect()
    }
}

/// Replaces each pair by one token, from the left.
fn joined(tokens: Vec<Merged>, pair: [u32; 2], by: u32) -> Vec<Merged> {
    let mut out: Vec<Merged> = Vec::with_capacity(tokens.len());
    let mut open = false;
    for next in tokens {
        match out.last_mut() {
            Some(last) if open && [last.token, next.token] == pair => {
                last.token = by;
                open = false;
            }
            _ => {
                open = next.token == pair[0];
                out.push(next);
            }
        }
    }
    out
}

/// Returns how many merged tokens are certain when the first `keyed` of `len` were: the last may join what follows.
fn kept(merged: &[Merged], keyed: usize, len: usize) -> usize {
    let whole = merged.partition_point(|merged| merged.from < keyed);
    if keyed < len { whole.saturating_sub(1) } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepared::PlacedMedia;

    type Case = (Vec<u32>, Vec<u32>, Option<Vec<(usize, usize)>>);

    fn golden() -> Vec<Case> {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/token-counts/gemma3_newlines.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    /// The golden's images are `2 6 7 7 7 8 2`.
    fn placed(tokens: &[u32]) -> Placed {
        let begins = tokens.windows(2).enumerate().filter(|(_, pair)| *pair == [6, 7]);
        let media = begins.enumerate().map(|(index, (at, _))| PlacedMedia {
            index,
            offset: at - 1,
            len: 7,
            tokens: 3,
            learned: false,
        });
        let len = tokens.len();
        let media = media.collect();
        Placed { tokens: tokens.to_vec(), keyed: len, located: len, media, ..Placed::default() }
    }

    #[test]
    fn merges_as_vllm_does() {
        let cases = golden();
        assert_eq!(cases.len(), 400);
        for (before, after, places) in cases {
            let found = Newlines([1, 2, 3, 4]).merge(placed(&before));
            assert_eq!(found.tokens, after, "{before:?}");
            let media: Vec<_> = found.media.iter().map(|item| (item.offset, item.len)).collect();
            match places {
                Some(places) => {
                    assert_eq!(media, places, "{before:?}");
                    assert_eq!(found.keyed, after.len());
                }
                None => {
                    assert_eq!((media.len(), found.keyed), (0, 0), "{before:?}");
                    assert_eq!(found.fallback, Some(Fallback::MediaRefused));
                }
            }
        }
    }

    #[test]
    fn nothing_uncertain_becomes_certain() {
        let mut uncertain = placed(&[1, 2, 6, 7, 7, 7, 8, 2, 1, 9]);
        (uncertain.keyed, uncertain.located) = (9, 9);
        let found = Newlines([1, 2, 3, 4]).merge(uncertain);
        assert!(found.keyed <= 7, "{found:?}");
    }
}
