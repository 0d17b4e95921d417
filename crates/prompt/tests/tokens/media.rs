//! Media in their places, and prompts that are certain only up to a point.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use identity::{KeyScope, MediaId, MediaSpan, block_keys};
use media_geometry::ImageSize;
use prompt::{
    ChatRequest, Clock, CompletionRequest, Error, Fallback, MediaFact, Model, ModelFiles, ModelOptions,
    PrepareOptions, Prepared, Prompt,
};
use serde_json::{Value, json};

const PAD: u32 = 4094;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/models/tiny-vl")
}

fn model_with(change: impl FnOnce(&mut ModelFiles)) -> Model {
    let mut files = ModelFiles::read(&directory()).unwrap();
    change(&mut files);
    Model::new(&files, ModelOptions::default()).unwrap()
}

fn model() -> Model {
    model_with(|_| {})
}

fn image(name: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": format!("http://h/{name}")}})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn request(content: &[Value]) -> ChatRequest {
    let body = json!({"messages": [{"role": "user", "content": content}]});
    ChatRequest::parse(&Bytes::from(body.to_string())).unwrap()
}

/// Facts by index: an id, and a square size of so many tokens a side.
fn facts(sides: &[Option<u32>]) -> Vec<MediaFact> {
    let fact = |(index, side): (usize, &Option<u32>)| MediaFact {
        index,
        id: Some(MediaId::new(&format!("id{index}"))),
        size: side.map(|side| ImageSize::new(side * 28, side * 28)),
    };
    sides.iter().enumerate().map(fact).collect()
}

fn prompt(model: &Model, content: &[Value], sides: &[Option<u32>]) -> Prompt {
    model.prompt(&request(content), &facts(sides), Clock::default()).unwrap()
}

/// The tokens before the first placeholder.
fn before_pad(prompt: &Prompt) -> usize {
    prompt.tokens.iter().position(|token| *token == PAD).unwrap()
}

#[test]
fn images_are_placed_in_order() {
    let prompt = prompt(&model(), &[image("a"), text("and"), image("b")], &[Some(2), Some(3)]);
    let placed: Vec<_> = prompt.media.iter().map(|item| (item.index, item.len, item.tokens)).collect();
    assert_eq!(placed, [(0, 4, 4), (1, 9, 9)]);
    for item in &prompt.media {
        assert!(prompt.tokens.get(item.offset..item.end()).unwrap().iter().all(|token| *token == PAD));
    }
    assert_eq!((prompt.keyed_tokens, prompt.fallback), (prompt.tokens.len(), None));
}

#[test]
fn a_literal_placeholder_takes_the_expansion() {
    let literal = prompt(&model(), &[text("see <|image_pad|>"), image("a")], &[Some(4)]);
    let item = literal.media.first().unwrap();
    assert_eq!((item.offset, item.len), (before_pad(&literal), 16));
    let pads = literal.tokens.iter().filter(|token| **token == PAD).count();
    assert_eq!((pads, literal.fallback), (17, None));
}

#[test]
fn literals_without_images_stay_single() {
    let literal = prompt(&model(), &[text("see <|image_pad|>")], &[]);
    assert_eq!(literal.tokens.iter().filter(|token| **token == PAD).count(), 1);
    assert_eq!((literal.keyed_tokens, literal.fallback), (literal.tokens.len(), None));
}

#[test]
fn certainty_ends_at_the_first_unknown_image() {
    let content = [image("a"), image("b"), image("c")];
    let unsized_one = prompt(&model(), &content, &[Some(2), None, Some(2)]);
    assert_eq!(unsized_one.fallback, Some(Fallback::MediaUnsized));
    let first = unsized_one.media.first().unwrap();
    assert_eq!(unsized_one.media.len(), 1);
    // Between two images stand the end and the start of vision.
    assert_eq!(unsized_one.keyed_tokens, first.end() + 2);
    let refused = prompt(&model(), &[image("a")], &[Some(1)]);
    assert_eq!(refused.fallback, None);
    let facts = [MediaFact { index: 0, id: Some(MediaId::new("x")), size: Some(ImageSize::new(1, 300)) }];
    let refused = model().prompt(&request(&[image("a")]), &facts, Clock::default()).unwrap();
    assert_eq!(refused.fallback, Some(Fallback::MediaRefused));
    assert_eq!(refused.keyed_tokens, before_pad(&refused));
}

#[test]
fn other_media_end_certainty_where_they_stand() {
    let video = json!({"type": "video_url", "video_url": {"url": "http://h/v"}});
    let prompt = prompt(&model(), &[image("a"), text("then"), video], &[Some(2), None]);
    assert_eq!(prompt.fallback, Some(Fallback::MediaUnsupported));
    let place = prompt.tokens.iter().position(|token| *token == 4095).unwrap();
    assert_eq!((prompt.keyed_tokens, prompt.media.len()), (place, 1));
}

#[test]
fn unknown_families_keep_their_text_before_media() {
    let change = |files: &mut ModelFiles| {
        let mut config: Value = serde_json::from_slice(&files.config).unwrap();
        config["model_type"] = json!("unheard_of");
        files.config = config.to_string().into_bytes();
    };
    let prompt = prompt(&model_with(change), &[text("x"), image("a")], &[Some(2)]);
    assert_eq!(prompt.fallback, Some(Fallback::MediaUnknownFamily));
    assert_eq!(prompt.keyed_tokens, before_pad(&prompt));
}

#[test]
fn media_kwargs_end_certainty_at_the_first_image() {
    let body = json!({
        "mm_processor_kwargs": {"max_pixels": 4},
        "messages": [{"role": "user", "content": [image("a")]}],
    });
    let request = ChatRequest::parse(&Bytes::from(body.to_string())).unwrap();
    let prompt = model().prompt(&request, &facts(&[Some(2)]), Clock::default()).unwrap();
    assert_eq!((prompt.fallback, prompt.keyed_tokens), (Some(Fallback::MediaKwargs), before_pad(&prompt)));
}

#[test]
fn templates_without_a_place_for_images_get_no_keys() {
    let change = |files: &mut ModelFiles| {
        files.chat_template_jinja = Some(
            b"{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}{% endfor %}".to_vec(),
        );
    };
    let prompt = prompt(&model_with(change), &[text("x"), image("a")], &[Some(2)]);
    assert_eq!((prompt.fallback, prompt.keyed_tokens), (Some(Fallback::MediaUnplaced), 0));
}

#[test]
fn broken_templates_get_a_guess() {
    let change = |files: &mut ModelFiles| files.chat_template_jinja = Some(b"{% for %}".to_vec());
    let model = model_with(change);
    assert!(model.template_failure().is_some());
    let prompt = prompt(&model, &[text("x")], &[]);
    assert_eq!((prompt.fallback, prompt.keyed_tokens), (Some(Fallback::Template), 0));
    let endless = |files: &mut ModelFiles| {
        let loops = "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        files.chat_template_jinja = Some(loops.into());
    };
    let endless = self::prompt(&model_with(endless), &[text("x")], &[]);
    assert_eq!(endless.fallback, Some(Fallback::Template));
    assert_eq!(endless.failure.as_deref(), Some("the chat template fails at line 1: engine ran out of fuel"));
}

#[test]
fn cut_prompts_get_no_keys() {
    let body = |cut: i64| json!({"truncate_prompt_tokens": cut, "messages": [{"role": "user", "content": "a b c d"}]});
    let prompt = |cut: i64| {
        let request = ChatRequest::parse(&Bytes::from(body(cut).to_string())).unwrap();
        model().prompt(&request, &[], Clock::default()).unwrap()
    };
    assert_eq!((prompt(5).fallback, prompt(5).keyed_tokens), (Some(Fallback::Truncated), 0));
    for fits in [-1, 1000] {
        assert_eq!((prompt(fits).fallback, prompt(fits).keyed_tokens), (None, prompt(fits).tokens.len()));
    }
}

#[test]
fn prompts_beyond_every_context_are_not_tokenised_whole() {
    let long = "word ".repeat(1 << 17);
    let options =
        PrepareOptions { context_tokens_max: Some(100), block_sizes: &[16], ..PrepareOptions::default() };
    let chat = |cut: Option<i64>, content: &str| {
        let messages = json!([{"role": "user", "content": content}]);
        let body = json!({"truncate_prompt_tokens": cut, "messages": messages});
        let request = ChatRequest::parse(&Bytes::from(body.to_string())).unwrap();
        let prepared = model().prepare(&request, &[], &options).unwrap();
        (prepared.fallback, prepared.routing.prompt_tokens, prepared.keyed_tokens)
    };
    assert_eq!(chat(None, &long), (Some(Fallback::TooLong), 101, 0));
    assert_eq!(chat(None, "word").0, None);
    // What is cut is as long as what is left of it, and may well fit.
    assert_eq!(chat(Some(40), &long), (Some(Fallback::Truncated), 40, 0));
    assert_eq!(chat(Some(-1), &long), (Some(Fallback::Truncated), 99, 0));
    let request = CompletionRequest::parse(&Bytes::from(json!({"prompt": [long, "b"]}).to_string())).unwrap();
    let prepared: Vec<_> = model().prepare_completion(&request, &options).map(|it| it.fallback).collect();
    assert_eq!(prepared, [Some(Fallback::TooLong), None]);
}

fn check_keys(prepared: &Prepared, block_size: u32, scope: KeyScope<'_>) {
    let narrow = |number: usize| u32::try_from(number).unwrap();
    let spans: Vec<MediaSpan> = prepared
        .media
        .iter()
        .map(|item| MediaSpan {
            key: MediaId::new(&format!("id{}", item.index)).key(),
            start: narrow(item.offset),
            len: narrow(item.len),
        })
        .collect();
    let certain = prepared.tokens.get(..prepared.keyed_tokens).unwrap();
    let expected = block_keys(scope.root(), certain, &spans, block_size);
    assert_eq!(prepared.routing.chain(block_size).unwrap(), expected);
}

#[test]
fn keys_cover_each_block_size_and_the_requests_salt() {
    let body = json!({
        "cache_salt": "salt",
        "messages": [{"role": "user", "content": [text("x"), image("a"), image("a"), image("b")]}],
    });
    let request = ChatRequest::parse(&Bytes::from(body.to_string())).unwrap();
    let scope = KeyScope { secret: "s", lora_name: "l", cache_salt: "" };
    let options = PrepareOptions { block_sizes: &[16, 32], scope, ..PrepareOptions::default() };
    let mut facts = facts(&[Some(5), Some(5), Some(2)]);
    let prepared = model().prepare(&request, &facts, &options).unwrap();
    for block_size in [16, 32] {
        check_keys(&prepared, block_size, KeyScope { cache_salt: "salt", ..scope });
    }
    let info = &prepared.routing.mm_routing_info;
    assert_eq!((info.total_image_tokens, info.image_multiset.len()), (54, 3));
    facts.get_mut(1).unwrap().id = Some(MediaId::new("id0"));
    let twice = model().prepare(&request, &facts, &options).unwrap();
    let same = twice
        .routing
        .mm_routing_info
        .image_multiset
        .iter()
        .filter(|(key, _)| *key == MediaId::new("id0").key());
    assert_eq!(same.count(), 2);
    assert!(twice.routing.mm_routing_info.image_multiset.is_sorted());
}

#[test]
fn an_image_without_a_name_ends_the_keys_and_not_the_prompt() {
    let request = request(&[text("see"), image("a"), image("b"), image("c")]);
    let options = PrepareOptions { block_sizes: &[16], ..PrepareOptions::default() };
    let named = facts(&[Some(2), Some(5), Some(6)]);
    let mut facts = named.clone();
    facts.get_mut(1).unwrap().id = None;
    let (whole, part) = (model().prepare(&request, &named, &options).unwrap(), {
        model().prepare(&request, &facts, &options).unwrap()
    });
    assert_eq!((&part.tokens, part.fallback), (&whole.tokens, Some(Fallback::MediaUnidentified)));
    assert_eq!(part.keyed_tokens, whole.media.get(1).unwrap().offset);
    assert_eq!([&part.media[..], &part.beyond[..]].concat(), whole.media);
    assert_eq!(part.beyond.len(), 2);
    let info = &part.routing.mm_routing_info;
    assert_eq!((info.total_image_tokens, info.image_multiset.len()), (65, 2));
    let known = part.routing.chain(16).unwrap();
    let full = whole.routing.chain(16).unwrap();
    assert_eq!(known, full.get(..known.len()).unwrap());

    // The engine shows the names that the whole prompt has.
    let first_key = |index: usize| *full.get(whole.media.get(index).unwrap().offset / 16).unwrap();
    let ids: Vec<MediaId> = named.iter().filter_map(|fact| fact.id.clone()).collect();
    let sighted: Vec<prompt::Sighted<'_>> =
        ids.iter().enumerate().map(|(index, id)| (id, first_key(index))).collect();
    let nameless = part.nameless.unwrap();
    assert_eq!(nameless.indices().collect::<Vec<_>>(), [1]);
    assert_eq!(nameless.solve(16, 0, &sighted), [(1, MediaId::new("id1"))]);
    assert_eq!(whole.nameless, None);
}

#[test]
fn what_a_template_raises_reaches_the_client() {
    let change = |files: &mut ModelFiles| {
        files.chat_template_jinja = Some(b"{{ raise_exception('no ' ~ messages[0].role) }}".to_vec());
    };
    let error = model_with(change).prompt(&request(&[text("x")]), &[], Clock::default()).unwrap_err();
    assert_eq!(error, Error::Raised { message: "no user".to_owned() });
}

#[test]
fn completions_take_text_and_tokens() {
    let prepared = |prompt: Value| {
        let body = json!({"model": "m", "prompt": prompt}).to_string();
        let request = CompletionRequest::parse(&Bytes::from(body)).unwrap();
        let options = PrepareOptions { block_sizes: &[2], ..PrepareOptions::default() };
        let prepared: Vec<Prepared> = model().prepare_completion(&request, &options).collect();
        prepared.into_iter().map(|each| each.tokens).collect::<Vec<_>>()
    };
    let hello = model().tokenize("hello there", false).unwrap();
    assert_eq!(prepared(json!("hello there")), std::slice::from_ref(&hello));
    assert_eq!(prepared(json!(["hello there", "hello there"])), [hello.clone(), hello]);
    assert_eq!(prepared(json!([5, 6, PAD])), [[5, 6, PAD]]);
    assert_eq!(prepared(json!([[5], [6, 7]])), [vec![5], vec![6, 7]]);
    for (prompt, message) in [
        (json!(null), "`prompt` is required"),
        (json!([]), "`prompt` must not be empty"),
        (json!([[]]), "`prompt` must not be empty"),
        (json!(5), "`prompt` must be a string, token ids, or an array of these"),
        (json!([-1]), "`prompt` must be made of non-negative token ids"),
        (json!([1, "x"]), "`prompt` must be made of non-negative token ids"),
    ] {
        let body = json!({"prompt": prompt}).to_string();
        assert_eq!(CompletionRequest::parse(&Bytes::from(body)).unwrap_err().to_string(), message);
    }
}

#[test]
fn bad_directories_are_named() {
    let missing = ModelFiles::read(Path::new("/nonexistent/model")).unwrap_err();
    assert_eq!(missing.to_string(), "model directory /nonexistent/model does not exist");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let empty = ModelFiles::read(here).unwrap_err().to_string();
    assert_eq!(empty, format!("model directory {} has no tokenizer.json", here.display()));
    let mut files = ModelFiles::read(&directory()).unwrap();
    files.config = b"{".to_vec();
    let invalid = Model::new(&files, ModelOptions::default()).unwrap_err().to_string();
    assert!(invalid.starts_with("config.json is not valid: "), "{invalid}");
}
