//! What a request asks of generation and of its answer, in the order in which vLLM complains about it.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::ApiError;
use crate::reply::ReplyLimits;

/// The parts of a chat or completion body that the prompt doesn't depend on.
#[derive(Debug, Deserialize)]
pub(crate) struct Options {
    pub(crate) model: Option<String>,
    #[serde(default)]
    pub(crate) stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<i64>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    min_tokens: Option<i64>,
    temperature: Option<f64>,
    pub(crate) seed: Option<i64>,
    stop: Option<Stop>,
    stop_token_ids: Option<Vec<u32>>,
    include_stop_str_in_output: Option<bool>,
    ignore_eos: Option<bool>,
    logprobs: Option<Logprobs>,
    top_logprobs: Option<u32>,
    prompt_logprobs: Option<i64>,
    pub(crate) return_token_ids: Option<bool>,
    cache_salt: Option<String>,
    pub(crate) session_id: Option<String>,
    echo: Option<bool>,
    suffix: Option<IgnoredAny>,
    tools: Option<IgnoredAny>,
    tool_choice: Option<serde_json::Value>,
    mm_processor_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
    media_io_kwargs: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    #[serde(default)]
    continuous_usage_stats: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Stop {
    One(String),
    Many(Vec<String>),
}

/// `logprobs` of chat (whether) or of completions (how many).
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
enum Logprobs {
    /// Chat.
    Wanted(bool),
    /// Completions.
    Count(#[expect(dead_code, reason = "only its presence counts")] u32),
}

/// What of `usage` a stream carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamUsage {
    /// A last chunk with the totals.
    pub(crate) last: bool,
    /// Running totals in every chunk.
    pub(crate) every: bool,
}

impl Options {
    /// Says whether the answer is a stream.
    pub(crate) fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Returns the number of answers to each prompt, checked before.
    pub(crate) fn answers(&self) -> u32 {
        self.n.and_then(|n| u32::try_from(n).ok()).unwrap_or(1)
    }

    /// Returns how many alternatives a chat's log-probabilities have; `None` without any.
    pub(crate) fn chat_logprobs(&self) -> Option<u32> {
        match self.logprobs {
            Some(Logprobs::Wanted(true)) => Some(self.top_logprobs.unwrap_or(0)),
            _ => None,
        }
    }

    /// Says whether a completion tells log-probabilities.
    pub(crate) fn completion_logprobs(&self) -> bool {
        matches!(self.logprobs, Some(Logprobs::Count(_)))
    }

    /// Says which usage a stream carries.
    pub(crate) fn stream_usage(&self) -> StreamUsage {
        let options = self.stream_options.unwrap_or_default();
        let last = options.include_usage.unwrap_or(false);
        StreamUsage { last, every: last && options.continuous_usage_stats.unwrap_or(false) }
    }

    /// Says whether the text is to begin with the prompt's.
    pub(crate) fn echoes(&self) -> bool {
        self.echo.unwrap_or(false)
    }

    /// Says whether a chat tells its prompt's log-probabilities, for which nothing is read from the cache: `echo`
    /// asks for them too, as in vLLM.
    pub(crate) fn chat_prompt_logprobs(&self) -> bool {
        self.prompt_logprobs.is_some() || self.echoes()
    }

    /// Says the same of a completion, where `echo` alone does not suffice.
    pub(crate) fn completion_prompt_logprobs(&self) -> bool {
        self.prompt_logprobs.is_some() || self.echoes() && self.completion_logprobs()
    }

    /// Checks what both kinds of requests share.
    pub(crate) fn check(&self, max_model_len: u32) -> Result<(), ApiError> {
        if self.stream_options.is_some() && !self.streams() {
            return Err(ApiError::invalid(
                "Stream options can only be defined when `stream=True`.",
                "stream_options",
                None,
            ));
        }
        if self.cache_salt.as_deref() == Some("") {
            let message = "Parameter 'cache_salt' must be a non-empty string if provided.";
            return Err(ApiError::invalid(message, "cache_salt", None));
        }
        if self.prompt_logprobs.is_some() && self.streams() {
            let message = "`prompt_logprobs` are not available when `stream=True`.";
            return Err(ApiError::invalid(message, "prompt_logprobs", None));
        }
        if self.suffix.is_some() {
            let message = "suffix is only supported for models with FIM completion rendering";
            return Err(ApiError::bad(message).with_param("suffix"));
        }
        self.check_kwargs()?;
        self.check_sampling(max_model_len)
    }

    /// Checks what only chat requests have.
    pub(crate) fn check_tools(&self) -> Result<(), ApiError> {
        let none = self.tool_choice.as_ref().is_some_and(|choice| choice == "none");
        if self.tools.is_some() && !none {
            let message =
                "\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set";
            return Err(ApiError::bad(message));
        }
        Ok(())
    }

    /// Returns when each answer ends. `default` is the limit of a request that sets none.
    pub(crate) fn limits(&self, room: u32, default: Option<u32>, natural: Option<u32>) -> ReplyLimits {
        let asked =
            self.max_completion_tokens.or(self.max_tokens).and_then(|tokens| u32::try_from(tokens).ok());
        let stop = match &self.stop {
            None => Vec::new(),
            Some(Stop::One(stop)) => vec![stop.clone()],
            Some(Stop::Many(stops)) => stops.clone(),
        };
        ReplyLimits {
            tokens_max: asked.or(default).unwrap_or(room).min(room).max(1),
            tokens_min: self.min_tokens.and_then(|tokens| u32::try_from(tokens).ok()).unwrap_or(0),
            natural: natural.filter(|_| !self.ignore_eos.unwrap_or(false)),
            stop_tokens: self.stop_token_ids.clone().unwrap_or_default(),
            stop: stop.into_iter().filter(|stop| !stop.is_empty()).collect(),
            include_stop: self.include_stop_str_in_output.unwrap_or(false),
        }
    }

    fn check_kwargs(&self) -> Result<(), ApiError> {
        let given =
            |kwargs: &Option<serde_json::Map<_, _>>| kwargs.as_ref().is_some_and(|kwargs| !kwargs.is_empty());
        for (name, kwargs) in
            [("mm_processor_kwargs", &self.mm_processor_kwargs), ("media_io_kwargs", &self.media_io_kwargs)]
        {
            if given(kwargs) {
                let message = format!(
                    "Per-request {name} are disabled by default because they can change multimodal preprocessing \
                     resource usage. Start the server with --trust-request-mm-kwargs only when clients are trusted."
                );
                return Err(ApiError::invalid(&message, name, None));
            }
        }
        Ok(())
    }

    fn check_sampling(&self, max_model_len: u32) -> Result<(), ApiError> {
        let tokens = self.max_completion_tokens.or(self.max_tokens);
        if let Some(tokens) = tokens.filter(|&tokens| tokens > i64::from(max_model_len)) {
            let message = format!(
                "max_tokens={tokens} cannot be greater than max_model_len={max_model_len}. Please request fewer \
                 output tokens."
            );
            return Err(ApiError::invalid(&message, "max_tokens", Some(tokens.to_string())));
        }
        let n = self.n.unwrap_or(1);
        if n < 1 {
            return Err(ApiError::bad(format!("n must be at least 1, got {n}.")));
        }
        if n > 128 {
            return Err(ApiError::bad(format!("n must be at most 128, got {n}.")));
        }
        if let Some(temperature) = self.temperature.filter(|&temperature| temperature < 0.0) {
            let message = format!("temperature must be non-negative, got {temperature:?}.");
            return Err(ApiError::invalid(&message, "temperature", Some(format!("{temperature:?}"))));
        }
        if let Some(tokens) = tokens.filter(|&tokens| tokens < 1) {
            let message = format!("max_tokens must be at least 1, got {tokens}.");
            return Err(ApiError::invalid(&message, "max_tokens", Some(tokens.to_string())));
        }
        if n > 1 && self.temperature.is_some_and(|temperature| temperature < 1e-5) {
            return Err(ApiError::bad(format!("n must be 1 when using greedy sampling, got {n}.")));
        }
        Ok(())
    }
}
