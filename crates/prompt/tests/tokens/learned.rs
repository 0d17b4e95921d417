//! Prompts of a model without a family, whose images have learned counts.

use bytes::Bytes;
use identity::MediaId;
use media_geometry::ImageSize;
use placement::Confidence;
use prompt::{
    ChatRequest, Fallback, LearnedCount, MediaFact, Model, ModelFiles, ModelOptions, PrepareOptions, Prepared,
};
use serde_json::{Value, json};

const PAD: u32 = 4094;

/// The small model, its configuration changed.
fn model_with(change: impl FnOnce(&mut Value)) -> Model {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tiny-vl");
    let mut files = ModelFiles::read(&directory).unwrap();
    let mut config = serde_json::from_slice(&files.config).unwrap();
    change(&mut config);
    files.config = config.to_string().into_bytes();
    Model::new(&files, ModelOptions::default()).unwrap()
}

fn without_family() -> Model {
    model_with(|config| config["model_type"] = json!("nobody_knows_vl"))
}

/// Prepares `a <image>… b <image>… c`, as many images as there are sizes.
fn prepare(model: &Model, sizes: &[Option<u32>], learned: &[LearnedCount]) -> Prepared {
    let mut content = vec![json!({"type": "text", "text": "one two three four five six"})];
    for index in 0..sizes.len() {
        content.push(json!({"type": "image_url", "image_url": {"url": format!("http://h/{index}")}}));
        content.push(json!({"type": "text", "text": "seven eight nine"}));
    }
    let body = json!({"messages": [{"role": "user", "content": content}]}).to_string();
    let fact = |(index, side): (usize, &Option<u32>)| MediaFact {
        index,
        id: Some(MediaId::new(&format!("id{index}"))),
        size: side.map(|side| ImageSize::new(side * 28, side * 28)),
    };
    let facts: Vec<MediaFact> = sizes.iter().enumerate().map(fact).collect();
    let request = ChatRequest::parse(&Bytes::from(body)).unwrap();
    let options = PrepareOptions { block_sizes: &[4], learned, ..PrepareOptions::default() };
    model.prepare(&request, &facts, &options).unwrap()
}

#[test]
fn a_learned_count_gives_the_prompt_that_a_family_gives() {
    let exact = prepare(&model_with(|_| {}), &[Some(4), Some(5)], &[]);
    let counts = [LearnedCount { index: 0, tokens: 16 }, LearnedCount { index: 1, tokens: 25 }];
    let learned = prepare(&without_family(), &[Some(4), Some(5)], &counts);
    assert_eq!((learned.confidence, exact.confidence), (Confidence::Learned, Confidence::Exact));
    assert_eq!((&learned.tokens, &learned.routing), (&exact.tokens, &exact.routing));
    assert_eq!((learned.fallback, learned.keyed_tokens), (None, learned.tokens.len()));
    assert!(learned.media.iter().all(|item| item.learned) && exact.media.iter().all(|item| !item.learned));
}

#[test]
fn one_image_without_a_count_loses_only_what_comes_after_it() {
    let model = without_family();
    let unknown = prepare(&model, &[Some(4), Some(5)], &[]);
    let first_pad = unknown.tokens.iter().position(|token| *token == PAD).unwrap();
    assert_eq!(
        (unknown.confidence, unknown.fallback),
        (Confidence::Unknown, Some(Fallback::MediaUnknownFamily))
    );
    assert_eq!(unknown.keyed_tokens, first_pad, "text before the image counts");
    let uncounted = unknown.uncounted.unwrap();
    assert_eq!(uncounted.images, [0, 1]);
    let pads = unknown.tokens.iter().filter(|token| **token == PAD).count();
    assert_eq!((pads, uncounted.other_tokens as usize), (2, unknown.tokens.len() - 2));

    let half = prepare(&model, &[Some(4), Some(5)], &[LearnedCount { index: 0, tokens: 16 }]);
    assert_eq!(half.media.len(), 1);
    assert_eq!(half.tokens.get(half.keyed_tokens), Some(&PAD), "up to the second image");
    assert_eq!(half.keyed_tokens, half.tokens.iter().rposition(|token| *token == PAD).unwrap());
    assert_eq!(half.uncounted.unwrap().images, [1]);
    assert!(half.routing.chains[0].keys.len() > unknown.routing.chains[0].keys.len());
    // A later image's count is of no use before an earlier one's is known, and never credits anything.
    let later = prepare(&model, &[Some(4), Some(5)], &[LearnedCount { index: 1, tokens: 25 }]);
    assert_eq!(later.routing.chains, unknown.routing.chains);
}

#[test]
fn an_image_without_a_size_may_have_a_learned_count() {
    let model = model_with(|_| {});
    let counts = [LearnedCount { index: 0, tokens: 16 }];
    let learned = prepare(&model, &[None], &counts);
    assert_eq!(learned.tokens, prepare(&model, &[Some(4)], &[]).tokens);
    assert_eq!(learned.confidence, Confidence::Learned);
    // Where the size is known, the family knows better than anybody.
    let exact = prepare(&model, &[Some(5)], &counts);
    assert_eq!((exact.confidence, exact.media[0].tokens), (Confidence::Exact, 25));
    let unsized_image = prepare(&model, &[None], &[]);
    assert_eq!(unsized_image.uncounted.unwrap().images, [0]);
    assert_eq!(prepare(&model, &[Some(4), None], &[]).uncounted, None, "families may count images together");
}

#[test]
fn hybrid_attention_is_at_most_learned() {
    let model = model_with(|config| {
        config["text_config"]["layer_types"] = json!(["sliding_attention", "full_attention"]);
    });
    assert!(model.facts().hybrid_attention);
    assert_eq!(prepare(&model, &[Some(4)], &[]).confidence, Confidence::Learned);
    assert_eq!(prepare(&model, &[], &[]).confidence, Confidence::Learned, "text too");
    assert_eq!(prepare(&model, &[None], &[]).confidence, Confidence::Unknown);
}
