//! The HTTP surface, as far as vLLM's clients and a router use it.

mod body;
mod chat;
mod chat_stream;
mod completion_stream;
mod completions;
mod error;
mod generation;
mod head;
mod logprobs;
mod metrics;
mod models;
mod options;
mod reset;
mod sse;
mod streaming;
mod tokenize;
mod trace;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use identity::MediaId;
use prompt::{ChatRequest, Clock, CompletionRequest, Fallback, MediaFact, Model};

pub(crate) use self::error::ApiError;
pub(crate) use self::generation::Prompt;
pub(crate) use self::options::Options;
use crate::block_hash::{MediaRange, Scope};
use crate::kv_event_source::KvEventSource;
use crate::media::{Image, MediaLoader};
use crate::rank::RankHandle;
use crate::vocabulary::Vocabulary;
use crate::wall_clock;

/// All that handlers share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) model_name: String,
    /// The model directory as it was given.
    pub(crate) model_path: String,
    pub(crate) version: &'static str,
    pub(crate) fingerprint: String,
    pub(crate) model: Model,
    pub(crate) vocabulary: Arc<Vocabulary>,
    pub(crate) media: MediaLoader,
    pub(crate) ranks: Vec<RankHandle>,
    pub(crate) event_sources: Vec<KvEventSource>,
    pub(crate) max_model_len: u32,
    pub(crate) block_size: u32,
    /// Blocks of each rank, the reserved one included.
    pub(crate) kv_blocks: u32,
    /// Tokens after which replies end by themselves.
    pub(crate) reply_tokens: Option<u32>,
    pub(crate) prompt_tokens_details: bool,
    /// Start of the engine, since the Unix epoch.
    pub(crate) started: Duration,
    pub(crate) requests: AtomicU64,
}

/// Builds the router. Bodies may have up to `body_bytes_max` bytes.
pub(crate) fn router(engine: Arc<Engine>, body_bytes_max: usize) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat::chat))
        .route("/v1/completions", post(completions::completions))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/v1/models", get(models::models))
        .route("/version", get(models::version))
        .route("/health", get(healthy))
        .route("/ping", get(healthy).post(healthy))
        .route("/load", get(models::load))
        .route("/kv_event_sources", get(models::kv_event_sources))
        .route("/metrics", get(metrics::metrics))
        .route("/engine_sim/media", get(received))
        .route("/reset_prefix_cache", post(reset::prefix_cache))
        .route("/reset_mm_cache", post(reset::mm_cache))
        .route("/reset_encoder_cache", post(reset::encoder_cache))
        // The body is read, so that the connection stays usable.
        .fallback(|_body: Bytes| async { detail(StatusCode::NOT_FOUND, "Not Found") })
        .method_not_allowed_fallback(|| async {
            detail(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
        })
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(engine)
}

async fn received(State(engine): State<Arc<Engine>>) -> impl IntoResponse {
    axum::Json(serde_json::json!({ "media": engine.media.receipts() }))
}

async fn healthy() -> StatusCode {
    StatusCode::OK
}

fn detail(status: StatusCode, detail: &str) -> Response {
    (status, axum::Json(serde_json::json!({ "detail": detail }))).into_response()
}

impl Engine {
    /// Refuses other models than the one that is served; none named means that one.
    pub(crate) fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match asked.filter(|asked| !asked.is_empty() && *asked != self.model_name) {
            Some(asked) => Err(ApiError::unknown_model(asked, &self.model_name)),
            None => Ok(()),
        }
    }

    /// Names an answer after the request's own id, else by a fresh one.
    pub(crate) fn request_id(&self, kind: &str, headers: &HeaderMap) -> String {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        if let Some(id) = headers.get("x-request-id").and_then(|id| id.to_str().ok()) {
            return format!("{kind}-{id}");
        }
        let start = self.started.as_nanos() & 0xffff_ffff;
        format!("{kind}-{:016x}", (start << 32) | u128::from(number & 0xffff_ffff))
    }

    /// Returns the text of tokens, special ones included.
    pub(crate) fn text(&self, tokens: &[u32]) -> String {
        self.model.detokenize(tokens, false).unwrap_or_default()
    }

    /// Renders, tokenises and expands a chat, its images loaded.
    pub(crate) async fn chat_prompt(&self, request: &ChatRequest) -> Result<Prompt, ApiError> {
        let images = self.media.load(request.media()).await?;
        let fact = |(index, image): (usize, &Image)| MediaFact {
            index,
            id: Some(MediaId::new(&image.identity)),
            size: Some(image.size),
        };
        let facts: Vec<MediaFact> = images.iter().enumerate().map(fact).collect();
        let prompt = self.model.prompt(request, &facts, clock()).map_err(body::refused)?;
        let scope = Scope {
            media: prompt.media.iter().filter_map(|item| range(item, &images)).collect(),
            salt: request.params().cache_salt.as_deref().map(Arc::from),
        };
        self.checked(prompt, request.params(), scope)
    }

    /// Tokenises the prompts of a completion request.
    pub(crate) fn completion_prompts(&self, request: &CompletionRequest) -> Result<Vec<Prompt>, ApiError> {
        let salt = request.params().cache_salt.as_deref().map(Arc::<str>::from);
        let prompt = |given| {
            let prompt = self.model.completion_prompt(given, request.params());
            let scope = Scope { salt: salt.clone(), ..Scope::default() };
            let size = self.model.vocabulary_size();
            if let Some(unknown) = prompt.tokens.iter().find(|&&token| token as usize >= size) {
                return Err(ApiError::bad(format!("Token id {unknown} is out of vocabulary")));
            }
            self.checked(prompt, request.params(), scope)
        };
        request.prompts().iter().map(prompt).collect()
    }

    /// Refuses prompts that an engine would, and cuts those that are to be cut.
    fn checked(
        &self,
        mut prompt: prompt::Prompt,
        params: &prompt::Params,
        scope: Scope,
    ) -> Result<Prompt, ApiError> {
        match prompt.fallback {
            None => {}
            Some(Fallback::Truncated) => {
                let kept = params.reading.truncate_prompt_tokens.and_then(|kept| usize::try_from(kept).ok());
                let kept = kept.unwrap_or(self.max_model_len as usize);
                prompt.tokens.drain(..prompt.tokens.len().saturating_sub(kept));
            }
            Some(Fallback::MediaRefused) => {
                return Err(ApiError::bad(
                    "Failed to apply the image processor: the image's size is refused",
                ));
            }
            Some(fallback) => {
                return Err(ApiError::bad(format!("the prompt cannot be processed: {fallback}")));
            }
        }
        if prompt.tokens.is_empty() {
            return Err(ApiError::no_prompt());
        }
        if prompt.tokens.len() > self.max_model_len as usize {
            return Err(ApiError::context_overflow(self.max_model_len));
        }
        Ok(Prompt { tokens: prompt.tokens, scope, read_cache: true })
    }
}

/// Returns the time for templates that print it: this engine lives in UTC.
fn clock() -> Clock {
    let unix_seconds = i64::try_from(wall_clock::now().as_secs()).unwrap_or(i64::MAX);
    Clock { unix_seconds, utc_offset_seconds: 0 }
}

fn range(item: &prompt::PlacedMedia, images: &[Image]) -> Option<MediaRange> {
    Some(MediaRange {
        identity: Arc::clone(&images.get(item.index)?.identity),
        offset: u32::try_from(item.offset).ok()?,
        len: u32::try_from(item.len).ok()?,
    })
}
