//! Reading `usage` out of an answer that passes by.

use memchr::memmem::Finder;
use serde::Deserialize;

/// What an engine counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct Usage {
    pub(crate) prompt_tokens: u32,
    #[serde(default)]
    pub(crate) completion_tokens: Option<u32>,
    #[serde(default)]
    pub(crate) prompt_tokens_details: Option<PromptDetails>,
}

/// What an engine says of a prompt, if it is told to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct PromptDetails {
    #[serde(default)]
    pub(crate) cached_tokens: Option<u32>,
    #[serde(default)]
    pub(crate) multimodal_tokens: Option<MediaTokens>,
}

/// Tokens by kind of media.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct MediaTokens {
    #[serde(default)]
    pub(crate) image: Option<u32>,
}

impl Usage {
    pub(crate) fn cached_tokens(&self) -> Option<u32> {
        self.prompt_tokens_details.and_then(|details| details.cached_tokens)
    }

    pub(crate) fn media_tokens(&self) -> Option<u32> {
        self.prompt_tokens_details
            .and_then(|details| details.multimodal_tokens)
            .and_then(|tokens| tokens.image)
    }
}

const NAME: &[u8] = b"\"usage\":";
/// Largest usage object that is read, in bytes.
const OBJECT_BYTES_MAX: usize = 4096;

/// Finds the last `usage` object of a JSON answer or an event stream, frame by frame, keeping none of them.
///
/// The name cannot occur inside a JSON string: its quotes would be escaped there.
#[derive(Debug)]
pub(crate) struct UsageScanner {
    finder: Finder<'static>,
    /// The end of what was seen, when it may be the beginning of the name.
    carry: Vec<u8>,
    /// The object, from its brace on, while it is incomplete.
    object: Option<Object>,
    usage: Option<Usage>,
}

#[derive(Debug, Default)]
struct Object {
    text: Vec<u8>,
    depth: u32,
    quoted: bool,
    escaped: bool,
}

/// Whether an object is over.
enum Progress {
    More,
    Whole { read: usize },
    None { read: usize },
}

impl UsageScanner {
    pub(crate) fn new() -> Self {
        Self { finder: Finder::new(NAME), carry: Vec::new(), object: None, usage: None }
    }

    /// Looks at the next frame.
    pub(crate) fn feed(&mut self, frame: &[u8]) {
        let mut rest = frame;
        if self.object.is_none() && !self.carry.is_empty() {
            rest = self.stitch(rest);
        }
        loop {
            if self.object.is_some() {
                rest = self.continue_object(rest);
                if self.object.is_some() {
                    return;
                }
            }
            let Some(at) = self.finder.find(rest) else { break };
            rest = rest.get(at + NAME.len()..).unwrap_or_default();
            self.object = Some(Object::default());
        }
        self.remember(rest);
    }

    /// Returns the last usage seen.
    pub(crate) const fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// Looks for a name that began in an earlier frame; returns what is left of this one.
    fn stitch<'a>(&mut self, frame: &'a [u8]) -> &'a [u8] {
        let missing = NAME.len() - 1;
        let mut seam = std::mem::take(&mut self.carry);
        let carried = seam.len();
        seam.extend_from_slice(frame.get(..missing.min(frame.len())).unwrap_or_default());
        match self.finder.find(&seam) {
            Some(at) => {
                self.object = Some(Object::default());
                frame.get((at + NAME.len()).saturating_sub(carried)..).unwrap_or_default()
            }
            None if frame.len() < missing => {
                self.remember(&seam);
                &[]
            }
            None => frame,
        }
    }

    fn continue_object<'a>(&mut self, frame: &'a [u8]) -> &'a [u8] {
        let Some(object) = self.object.as_mut() else { return frame };
        let read = match object.feed(frame) {
            Progress::More => return &[],
            Progress::Whole { read } => {
                if let Ok(usage) = serde_json::from_slice(&object.text) {
                    self.usage = Some(usage);
                }
                read
            }
            Progress::None { read } => read,
        };
        self.object = None;
        frame.get(read..).unwrap_or_default()
    }

    fn remember(&mut self, rest: &[u8]) {
        if rest.is_empty() {
            return;
        }
        let tail = rest.get(rest.len().saturating_sub(NAME.len() - 1)..).unwrap_or(rest);
        let start = (0..tail.len()).find(|at| tail.get(*at..).is_some_and(|end| NAME.starts_with(end)));
        self.carry.clear();
        if let Some(end) = start.and_then(|start| tail.get(start..)) {
            self.carry.extend_from_slice(end);
        }
    }
}

impl Object {
    fn feed(&mut self, frame: &[u8]) -> Progress {
        for (at, byte) in frame.iter().copied().enumerate() {
            if self.depth == 0 && byte != b'{' {
                if byte.is_ascii_whitespace() {
                    continue;
                }
                return Progress::None { read: at };
            }
            self.text.push(byte);
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' if self.quoted => self.escaped = true,
                b'"' => self.quoted = !self.quoted,
                b'{' if !self.quoted => self.depth += 1,
                b'}' if !self.quoted => self.depth -= 1,
                _ => {}
            }
            if self.depth == 0 {
                return Progress::Whole { read: at + 1 };
            }
            if self.text.len() > OBJECT_BYTES_MAX {
                return Progress::None { read: at + 1 };
            }
        }
        Progress::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str, step: usize) -> Option<Usage> {
        let mut scanner = UsageScanner::new();
        for frame in text.as_bytes().chunks(step) {
            scanner.feed(frame);
        }
        scanner.usage()
    }

    #[test]
    fn last_usage_is_found_however_the_answer_is_framed() {
        let cases = [
            (r#"{"choices":[],"usage":{"prompt_tokens":12,"total_tokens":13},"x":null}"#, Some((12, None))),
            (
                "data: {\"usage\":null}\n\ndata: {\"usage\": {\"prompt_tokens\":7,\"prompt_tokens_details\":\
                 {\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n",
                Some((7, Some(4))),
            ),
            (r#"{"usage":{"prompt_tokens":1}} {"usage":{"prompt_tokens":2}}"#, Some((2, None))),
            (r#"{"content":"\"usage\":{\"prompt_tokens\":9}","u":1}"#, None),
            (r#"{"usage":{"prompt_tokens":3,"note":"}\"{"}}"#, Some((3, None))),
            (r#""usag"usage":{"prompt_tokens":5}"#, Some((5, None))),
            (r#"{"usage":{"prompt_tokens":"#, None),
            ("", None),
        ];
        for (text, expected) in cases {
            for step in 1..=text.len().max(1) {
                let found = scan(text, step).map(|usage| (usage.prompt_tokens, usage.cached_tokens()));
                assert_eq!(found, expected, "{text} in steps of {step}");
            }
        }
    }

    #[test]
    fn an_endless_object_is_given_up() {
        let mut scanner = UsageScanner::new();
        scanner.feed(b"\"usage\":{");
        for _ in 0..10_000 {
            scanner.feed(b"\"a\":1,");
        }
        assert!(scanner.object.is_none());
        scanner.feed(b"\"usage\":{\"prompt_tokens\":1}");
        assert_eq!(scanner.usage().unwrap().prompt_tokens, 1);
    }
}
