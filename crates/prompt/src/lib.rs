#![doc = include_str!("../README.md")]

mod base64_text;
mod chat_request;
mod completion_request;
mod conversation;
mod data_uri;
mod error;
mod expander;
mod fallback;
mod json;
pub mod media_config;
mod media_identity;
mod media_part;
mod model;
mod model_files;
mod params;
mod placeholder_text;
mod prepared;
mod rewrite;
mod segment_cache;
mod template;
mod template_choice;
mod tokeniser;

pub use chat_request::ChatRequest;
pub use completion_request::{CompletionPrompt, CompletionRequest};
pub use data_uri::DataUri;
pub use error::{Error, MediaFault};
pub use fallback::Fallback;
pub use media_identity::{Identified, MediaHasher, media_id};
pub use media_part::{MediaKind, MediaPart, MediaSource};
pub use model::{Model, ModelFacts, ModelOptions};
pub use model_files::{Digests, ModelError, ModelFiles};
pub use params::{Params, Reading};
pub use prepared::{MediaFact, PlacedMedia, PrepareOptions, Prepared, Prompt};
pub use rewrite::MediaEdit;
pub use template::{Clock, ContentFormat};
pub use tokeniser::TokenizeError;
