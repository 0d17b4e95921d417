//! Prints the tokens that the router gives requests, for comparison with an engine's.
//!
//! usage: `prompt_tokens MODEL_DIR [CHAT_TEMPLATE]`; reads a body a line, chats with images in them or completions, and
//! writes a line for each: `{"tokens": [...], "media": n, "fallback": null, "confidence": "exact"}` or `{"error": "..."}`.
#![expect(clippy::print_stdout, reason = "the lines were asked for")]

use std::io::BufRead;
use std::path::Path;

use bytes::Bytes;
use media_geometry::ImageSize;
use media_probe::{Probe, probe_whole};
use prompt::{
    ChatRequest, CompletionRequest, Fallback, MediaFact, MediaPart, MediaSource, Model, ModelFiles,
    ModelOptions, PrepareOptions, Prepared, media_id,
};
use serde_json::{Value, json};

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("usage: prompt_tokens MODEL_DIR [CHAT_TEMPLATE]")?;
    let chat_template = arguments.next().map(std::fs::read_to_string).transpose()?;
    let files = ModelFiles::read(Path::new(&directory))?;
    let model = Model::new(&files, ModelOptions { chat_template, ..ModelOptions::default() })?;
    for line in std::io::stdin().lock().lines() {
        let answer = answer(&model, &line?).unwrap_or_else(|error| json!({"error": error.to_string()}));
        println!("{answer}");
    }
    Ok(())
}

fn answer(model: &Model, line: &str) -> Result<Value, Error> {
    let body = Bytes::from(line.to_owned());
    let options = PrepareOptions::default();
    let prepared = if serde_json::from_str::<Value>(line)?.get("messages").is_some() {
        let request = ChatRequest::parse(&body)?;
        let facts = request.media().iter().map(fact).collect::<Result<Vec<_>, _>>()?;
        model.prepare(&request, &facts, &options)?
    } else {
        let request = CompletionRequest::parse(&body)?;
        let first = model.prepare_completion(&request, &options).next();
        first.ok_or("no prompt")?
    };
    Ok(written(&prepared))
}

fn written(prepared: &Prepared) -> Value {
    json!({
        "tokens": prepared.tokens,
        "media": prepared.routing.mm_routing_info.total_image_tokens,
        "fallback": prepared.fallback.map(Fallback::as_str),
        "confidence": prepared.confidence.as_str(),
    })
}

/// Identifies and sizes an image from its bytes in the body.
fn fact(part: &MediaPart) -> Result<MediaFact, Error> {
    let MediaSource::Data(uri) = &part.source else { return Err("an image is not in the body".into()) };
    let bytes = uri.decode(u64::MAX)?;
    let (Probe::Sized { width, height, .. } | Probe::Tentative { width, height, .. }) = probe_whole(&bytes)
    else {
        return Err("an image cannot be sized".into());
    };
    Ok(MediaFact { index: part.index, id: Some(media_id(&bytes)), size: Some(ImageSize::new(width, height)) })
}
