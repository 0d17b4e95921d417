//! Bodies of any form end in a prompt or in an error, never in a panic.

use std::cell::Cell;
use std::path::Path;

use bytes::Bytes;
use prompt::{ChatRequest, Clock, CompletionRequest, MediaEdit, Model, ModelFiles, ModelOptions};
use proptest::prelude::{Just, Strategy, any, prop, prop_oneof};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Map, Value, json};

/// Names that mean something somewhere in a body.
const NAMES: [&str; 40] = [
    "messages",
    "role",
    "content",
    "type",
    "text",
    "image_url",
    "url",
    "uuid",
    "video_url",
    "input_audio",
    "tools",
    "function",
    "name",
    "arguments",
    "tool_calls",
    "tool_call_id",
    "id",
    "parameters",
    "reasoning",
    "refusal",
    "thinking",
    "input_image",
    "chat_template_kwargs",
    "documents",
    "stream",
    "stream_options",
    "max_tokens",
    "n",
    "model",
    "cache_salt",
    "truncate_prompt_tokens",
    "continue_final_message",
    "add_generation_prompt",
    "user",
    "tool_reference",
    "mm_processor_kwargs",
    "prompt",
    "add_special_tokens",
    "reasoning_effort",
    "task",
];

/// Values that mean something somewhere in a body.
fn words() -> impl Strategy<Value = Value> {
    let words = vec![
        "system",
        "user",
        "assistant",
        "tool",
        "developer",
        "text",
        "image_url",
        "video_url",
        "function",
        "none",
        "auto",
        "http://h/a.png",
        "data:image/png;base64,iVBORw0KGgo=",
        "data:,",
        "<|image_pad|>",
        "{\"a\": 1}",
        "",
    ];
    prop_oneof![
        8 => prop::sample::select(words).prop_map(Value::from),
        2 => any::<bool>().prop_map(Value::from),
        2 => (-2_i64..5).prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => any::<String>().prop_map(Value::from),
    ]
}

fn object(values: impl Strategy<Value = Value>, members_max: usize) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(NAMES.to_vec()), values), 0..=members_max).prop_map(
        |members| Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
    )
}

fn values() -> impl Strategy<Value = Value> {
    words().prop_recursive(5, 40, 6, |inner| {
        prop_oneof![2 => object(inner.clone(), 5), 1 => prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

/// A content part that would be served, a member or two changed at random.
fn part() -> impl Strategy<Value = Value> {
    let whole = prop::sample::select(vec![
        json!({"type": "text", "text": "some text"}),
        json!({"type": "image_url", "image_url": {"url": "http://h/a.png"}}),
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "uuid": "u"}),
    ]);
    overlaid(whole, object(values(), 1))
}

/// Overlays random members on a body that would be served.
fn bodies() -> impl Strategy<Value = Value> {
    let content = prop_oneof![
        3 => prop::collection::vec(part(), 0..4).prop_map(Value::Array),
        1 => words(),
        1 => values(),
    ];
    let roles = prop::sample::select(vec!["user", "assistant", "system", "tool", "developer"]);
    let message = (roles, content).prop_map(|(role, content)| json!({"role": role, "content": content}));
    let message = overlaid(message, object(values(), 1));
    let body = prop::collection::vec(message, 1..4).prop_map(|messages| json!({"messages": messages}));
    overlaid(body, object(values(), 2))
}

fn overlaid(
    whole: impl Strategy<Value = Value>,
    members: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Value> {
    (whole, members).prop_map(|(mut whole, members)| {
        extend(&mut whole, members);
        whole
    })
}

fn extend(value: &mut Value, members: Value) {
    if let (Value::Object(value), Value::Object(members)) = (value, members) {
        value.extend::<Map<_, _>>(members);
    }
}

#[test]
fn any_body_is_served_or_refused() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = ModelFiles::read(&root.join("fixtures/models/tiny-vl")).unwrap();
    let template = |name: &str| {
        let path = root.join(format!("tests/golden/templates/sources/{name}.jinja"));
        let chat_template = Some(std::fs::read_to_string(path).unwrap());
        Model::new(&files, ModelOptions { chat_template, ..ModelOptions::default() }).unwrap()
    };
    let own = Model::new(&files, ModelOptions::default()).unwrap();
    let models = [own, template("headers"), template("features"), template("brackets")];
    let mut runner = TestRunner::new(Config { cases: 500, failure_persistence: None, ..Config::default() });
    let prompts = Cell::new(0_u32);
    runner
        .run(&bodies(), |body| {
            let body = Bytes::from(body.to_string());
            drop(CompletionRequest::parse(&body));
            let Ok(request) = ChatRequest::parse(&body) else { return Ok(()) };
            for model in &models {
                if let Ok(prompt) = model.prompt(&request, &[], Clock::default()) {
                    assert!(prompt.keyed_tokens <= prompt.tokens.len());
                    prompts.set(prompts.get() + 1);
                }
            }
            let edit =
                |index| MediaEdit { index, uuid: Some("u".into()), replaces_url: true, unnames: false };
            let edits: Vec<MediaEdit> = (0..request.media().len()).map(edit).collect();
            let url = Bytes::from_static(b"http://m");
            let emitted: Vec<u8> = request.outline(&edits).fill(|_| Some(url.clone())).concat();
            assert!(
                serde_json::from_slice::<Value>(&emitted).is_ok(),
                "{}",
                String::from_utf8_lossy(&emitted)
            );
            Ok(())
        })
        .unwrap();
    assert!(prompts.get() > 100, "{} prompts", prompts.get());
}
