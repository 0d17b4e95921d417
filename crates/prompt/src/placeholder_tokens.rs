//! The tokens that stand for media in a model's prompts, without loading its tokenizer.

use serde::Deserialize;

use crate::expander::PlaceholderIds;
use crate::media_config::{self, MediaFiles};
use crate::model_files::ModelFiles;

/// What is read of a `tokenizer.json`: placeholders are tokens that were added to the vocabulary.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Added {
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

/// Lists the tokens that stand for images, videos and sounds, ascending; resolved as prompts resolve them: a number in the
/// model's configurations, a configured token, the family's known ones. What cannot be read names none.
#[must_use]
pub fn placeholder_tokens(files: &ModelFiles) -> Vec<u32> {
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap_or_default();
    let optional = |bytes: &Option<Vec<u8>>| bytes.as_deref().map(json).unwrap_or_default();
    let configs = [json(&files.config), optional(&files.processor_config), optional(&files.tokenizer_config)];
    let added: Added = serde_json::from_slice(&files.tokenizer).unwrap_or_default();
    let token_id =
        |name: &str| added.added_tokens.iter().find(|token| token.content == name).map(|token| token.id);
    let geometry = media_config::geometry_of(&MediaFiles {
        config: &files.config,
        preprocessor: files.preprocessor_config.as_deref(),
        processor: files.processor_config.as_deref(),
        kwargs: None,
    });
    let geometry = geometry.ok().flatten();
    let ids = PlaceholderIds::resolve(&configs.each_ref(), geometry.as_ref(), token_id);
    let mut ids: Vec<u32> = [ids.image, ids.video, ids.audio].into_iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: &[u32]) {
        let tokenizer = br#"{"added_tokens":[{"id":5,"content":"<image>","special":true},{"id":6,"content":"<|image_pad|>"},
                             {"id":7,"content":"<video>"}],"model":{"vocab":{"a":1}}}"#;
        let files = ModelFiles {
            tokenizer: tokenizer.to_vec(),
            config: config.as_bytes().to_vec(),
            preprocessor_config: Some(b"{}".to_vec()),
            ..ModelFiles::default()
        };
        assert_eq!(placeholder_tokens(&files), expected, "{config}");
    }

    #[test]
    fn resolved_in_three_steps() {
        check(r#"{"image_token_id": 9, "image_token_index": -1, "video_token_id": 8}"#, &[8, 9]);
        check(r#"{"image_token_index": -1, "media_placeholder_token_id": 4}"#, &[4]);
        check(r#"{"image_token_id": null, "image_token": "<image>", "video_token": "<video>"}"#, &[5, 7]);
        check(r#"{"model_type": "qwen2_5_vl"}"#, &[6]);
        check("{}", &[]);
        check("not json", &[]);
    }
}
