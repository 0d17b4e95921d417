//! Rendered prompts against those of vLLM 0.32's own code (`tests/golden/templates/generate.py`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "golden files have a known form, and a test fails by panicking"
)]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use prompt::{ChatRequest, Clock, ContentFormat, Error, Model, ModelFiles, ModelOptions};
use serde_json::{Map, Value};

/// Saturday, 5 July 2025, 09:08:07, on a worker two hours east of Greenwich.
const CLOCK: Clock = Clock { unix_seconds: 1_751_699_287, utc_offset_seconds: 7200 };

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn json(path: &str) -> Value {
    serde_json::from_str(&text(path)).unwrap()
}

fn source(name: &str) -> String {
    match name {
        "tiny-vl" => text("fixtures/models/tiny-vl/chat_template.jinja"),
        "qwen2_5_vl" => text("tests/fixtures/models/qwen2_5_vl/chat_template.jinja"),
        "qwen3" => {
            let config = json("tests/fixtures/models/qwen/tokenizer_config.json");
            config["chat_template"].as_str().unwrap().to_owned()
        }
        own => text(&format!("tests/golden/templates/sources/{own}.jinja")),
    }
}

fn format(name: &str) -> ContentFormat {
    if name == "openai" { ContentFormat::Parts } else { ContentFormat::Text }
}

fn model(files: &ModelFiles, template: &str, options: &Value) -> Model {
    let flag = |name: &str| options[name].as_bool().unwrap_or_default();
    let options = ModelOptions {
        chat_template: Some(template.to_owned()),
        content_format: options["format"].as_str().map(format),
        default_template_kwargs: options["default_template_kwargs"]
            .as_object()
            .cloned()
            .unwrap_or_else(Map::new),
        interleave_media_text: flag("interleave"),
        hide_unused_tools: flag("hide_unused_tools"),
        ..ModelOptions::default()
    };
    Model::new(files, options).unwrap()
}

fn render(model: &Model, body: &Value) -> Result<Option<String>, Error> {
    model.render(&ChatRequest::parse(&Bytes::from(body.to_string()))?, CLOCK)
}

/// Says how a render differs from vLLM's, if it does.
fn difference(ours: &Result<Option<String>, Error>, theirs: &Value) -> Option<String> {
    match (ours, theirs["text"].as_str(), theirs["error"].as_str()) {
        (Ok(Some(ours)), Some(theirs), _) if ours == theirs => None,
        (Err(Error::Raised { message }), None, Some(theirs)) if message == theirs => None,
        // What fails in Python without being raised on purpose fails here too, or is not rendered.
        (Err(Error::Raised { .. }), ..) => Some(format!("{ours:?}\n{theirs}")),
        (Err(_) | Ok(None), None, Some(_)) => None,
        _ => Some(format!("ours   {ours:?}\ntheirs {theirs}")),
    }
}

#[test]
fn renders_equal_vllms() {
    let files = ModelFiles::read(&repository().join("fixtures/models/tiny-vl")).unwrap();
    let requests = json("tests/golden/templates/requests.json");
    let (mut compared, mut differences) = (0, Vec::new());
    for (name, golden) in json("tests/golden/templates/renders.json").as_object().unwrap() {
        let template = source(name);
        let detected = model(&files, &template, &Value::Null);
        assert_eq!(detected.template_failure(), None, "{name}");
        assert_eq!(detected.content_format(), format(golden["format"].as_str().unwrap()), "{name}");
        for request in requests.as_array().unwrap() {
            let label = request["name"].as_str().unwrap();
            let options = &request["options"];
            let configured = (!options.is_null()).then(|| model(&files, &template, options));
            let ours = render(configured.as_ref().unwrap_or(&detected), &request["body"]);
            let difference = difference(&ours, &golden["renders"][label]);
            differences.extend(difference.map(|text| format!("{name} / {label}\n{text}")));
            compared += 1;
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {compared} differ\n{}",
        differences.len(),
        differences.join("\n\n")
    );
    assert!(compared >= 500, "{compared}");
}
