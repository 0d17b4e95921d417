//! `POST /tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use http::HeaderMap;
use prompt::ChatRequest;
use serde::{Deserialize, Serialize};

use super::body::{json_body, parse, refused};
use super::{ApiError, Engine};

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    prompt: Option<String>,
    add_special_tokens: Option<bool>,
    return_token_strs: Option<bool>,
}

/// Answer of `/tokenize`.
#[derive(Debug, Serialize)]
pub(crate) struct Tokenized {
    count: usize,
    max_model_len: u32,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

/// Tokenises a prompt, or a chat with its media expanded.
pub(crate) async fn tokenize(
    State(engine): State<Arc<Engine>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Tokenized>, ApiError> {
    json_body(&headers)?;
    let request: Request = parse(&body)?;
    engine.check_model(request.model.as_deref())?;
    let tokens = match &request.prompt {
        Some(text) => {
            let special = request.add_special_tokens.unwrap_or(true);
            engine.model.tokenize(text, special).map_err(|error| ApiError::bad(error.to_string()))?
        }
        None => engine.chat_prompt(&ChatRequest::parse(&body).map_err(refused)?).await?.tokens,
    };
    let string = |&token: &u32| engine.model.token(token).unwrap_or_default();
    let token_strs = request.return_token_strs.unwrap_or(false).then(|| tokens.iter().map(string).collect());
    Ok(Json(Tokenized { count: tokens.len(), max_model_len: engine.max_model_len, tokens, token_strs }))
}

#[derive(Debug, Deserialize)]
struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

/// Answer of `/detokenize`.
#[derive(Debug, Serialize)]
pub(crate) struct Detokenized {
    prompt: String,
}

/// Returns the text of tokens.
pub(crate) async fn detokenize(
    State(engine): State<Arc<Engine>>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Detokenized>, ApiError> {
    json_body(&headers)?;
    let request: DetokenizeRequest = parse(&body)?;
    engine.check_model(request.model.as_deref())?;
    Ok(Json(Detokenized { prompt: engine.text(&request.tokens) }))
}
