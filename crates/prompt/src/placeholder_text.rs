//! What stands for media in the text of models whose templates take strings.

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

/// The placeholder texts of a model, by modality; `{i}` stands for the item's number, from 1.
///
/// Taken from `get_placeholder_str` of vLLM's model classes; a modality without text has no placeholder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaceholderText {
    image: Option<&'static str>,
    video: Option<&'static str>,
}

/// How many items of each modality a request has had so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    image: u32,
    video: u32,
}

/// A piece of a message's content.
#[derive(Clone, Debug)]
pub(crate) enum Element<'a> {
    Text(Cow<'a, str>),
    /// A medium's placeholder, if its model has one.
    Media(Option<String>),
}

const QWEN: PlaceholderText = PlaceholderText {
    image: Some("<|vision_start|><|image_pad|><|vision_end|>"),
    video: Some("<|vision_start|><|video_pad|><|vision_end|>"),
};
const GLM: PlaceholderText = PlaceholderText {
    image: Some("<|begin_of_image|><|image|><|end_of_image|>"),
    video: Some("<|begin_of_video|><|video|><|end_of_video|>"),
};
const MINICPM: PlaceholderText =
    PlaceholderText { image: Some("(<image>./</image>)"), video: Some("(<video>./</video>)") };

impl PlaceholderText {
    /// Finds a model's placeholders by its exact `model_type`.
    pub(crate) fn of(model_type: &str) -> Self {
        let image = |text| Self { image: Some(text), video: None };
        match model_type {
            "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" | "qwen2_5_omni" | "qwen3_5"
            | "qwen3_5_moe" => QWEN,
            "glm4v" | "glm4v_moe" => GLM,
            "minicpmv" | "minicpmo" => MINICPM,
            "llava" | "llava_next" | "idefics3" | "smolvlm" => image("<image>"),
            "llava_onevision" | "internvl_chat" | "internvl" => {
                Self { image: Some("<image>"), video: Some("<video>") }
            }
            "gemma3" => image("<start_of_image>"),
            "gemma4" => Self { image: Some("<image_soft_token>"), video: Some("<|video|>") },
            "llama4" => image("<|image|>"),
            "phi3_v" | "phi4mm" => image("<|image_{i}|>"),
            "kimi_k25" => image("<|media_begin|>image<|media_content|><|media_pad|><|media_end|>"),
            _ => Self::default(),
        }
    }

    /// Returns the next item's placeholder.
    pub(crate) fn next(&self, modality: &str, counts: &mut Counts) -> Option<String> {
        let (text, count) = match modality {
            "image" => (self.image?, &mut counts.image),
            "video" => (self.video?, &mut counts.video),
            _ => return None,
        };
        *count += 1;
        Some(text.replace("{i}", &count.to_string()))
    }
}

/// Joins a message's pieces by newline. Placeholders that the text doesn't spell itself go to the front, or stay where
/// they were when interleaved.
///
/// Fails with the placeholder that the text spells more often than there are items.
pub(crate) fn join(elements: Vec<Element<'_>>, interleave: bool) -> Result<Cow<'_, str>, String> {
    let mut texts = Vec::with_capacity(elements.len());
    let mut wanted: Vec<(String, usize)> = Vec::new();
    for element in elements {
        match element {
            Element::Text(text) => texts.push(text),
            Element::Media(None) => {}
            Element::Media(Some(placeholder)) => {
                match wanted.iter_mut().find(|(text, _)| *text == placeholder) {
                    Some((_, count)) => *count += 1,
                    None => wanted.push((placeholder.clone(), 1)),
                }
                if interleave {
                    texts.push(Cow::Owned(placeholder));
                }
            }
        }
    }
    if wanted.is_empty() && texts.len() == 1 {
        return Ok(texts.pop().unwrap_or_default());
    }
    let text = texts.join("\n");
    let spelled = spelled(&text, &wanted);
    let mut front = Vec::new();
    for ((placeholder, count), spelled) in wanted.into_iter().zip(spelled) {
        let missing = count.checked_sub(spelled).ok_or_else(|| placeholder.clone())?;
        front.extend(std::iter::repeat_n(placeholder, missing));
    }
    if !text.is_empty() || front.is_empty() {
        front.push(text);
    }
    Ok(Cow::Owned(front.join("\n")))
}

/// Counts how often a text spells each placeholder, in one pass: a request may have a thousand.
fn spelled(text: &str, wanted: &[(String, usize)]) -> Vec<usize> {
    let mut counts = vec![0; wanted.len()];
    let placeholders = wanted.iter().map(|(placeholder, _)| placeholder);
    let matcher = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(placeholders);
    for found in matcher.iter().flat_map(|matcher| matcher.find_iter(text)) {
        if let Some(count) = counts.get_mut(found.pattern().as_usize()) {
            *count += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(model_type: &str, pieces: &[&str], interleave: bool, expected: Result<&str, &str>) {
        let placeholders = PlaceholderText::of(model_type);
        let mut counts = Counts::default();
        let elements = pieces.iter().map(|piece| match *piece {
            "#" => Element::Media(placeholders.next("image", &mut counts)),
            text => Element::Text(Cow::Borrowed(text)),
        });
        let joined = join(elements.collect(), interleave);
        assert_eq!(joined.as_deref().map_err(String::as_str), expected, "{pieces:?}");
    }

    #[test]
    fn missing_placeholders_go_to_the_front() {
        check("llava", &["a", "#", "b"], false, Ok("<image>\na\nb"));
        check("llava", &["a", "#", "b"], true, Ok("a\n<image>\nb"));
        check("llava", &["#"], false, Ok("<image>"));
        check("llava", &["a <image> b", "#", "#"], false, Ok("<image>\na <image> b"));
        check("llava", &["<image><image>", "#"], false, Err("<image>"));
        check("phi3_v", &["x", "#", "#"], false, Ok("<|image_1|>\n<|image_2|>\nx"));
        check("phi3_v", &["<|image_2|> x", "#", "#"], false, Ok("<|image_1|>\n<|image_2|> x"));
        check("pixtral", &["a", "#", "b"], false, Ok("a\nb"));
        check("unheard_of", &["a", "#"], true, Ok("a"));
        check("llava", &[], false, Ok(""));
    }
}
