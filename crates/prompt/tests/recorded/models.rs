//! The models of the recordings.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use prompt::{Model, ModelFiles, ModelOptions};

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Loads the repository's own small model.
pub(crate) fn tiny_vl() -> Model {
    let files = ModelFiles::read(&repository().join("fixtures/models/tiny-vl")).unwrap();
    Model::new(&files, ModelOptions::default()).unwrap()
}

/// Loads a Qwen model: the family's configuration over the shared tokenizer.
pub(crate) fn qwen(family: &str) -> Model {
    let models = repository().join("tests/fixtures/models");
    let file = |name: &str| std::fs::read(models.join(name)).unwrap();
    let mut tokenizer = Vec::new();
    GzDecoder::new(file("qwen/tokenizer.json.gz").as_slice()).read_to_end(&mut tokenizer).unwrap();
    let of_family = |name: &str| file(&format!("{family}/{name}"));
    let files = ModelFiles {
        tokenizer,
        config: of_family("config.json"),
        tokenizer_config: Some(file("qwen/tokenizer_config.json")),
        chat_template_jinja: Some(of_family("chat_template.jinja")),
        preprocessor_config: Some(of_family("preprocessor_config.json")),
        generation_config: Some(of_family("generation_config.json")),
        ..ModelFiles::default()
    };
    Model::new(&files, ModelOptions::default()).unwrap()
}
