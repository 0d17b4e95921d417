//! The variables that a chat template sees.

use minijinja::Value;

use crate::chat_request::ChatRequest;
use crate::conversation;
use crate::error::Error;
use crate::json;
use crate::model_files::ModelError;

/// The tokeniser's special tokens by the names that templates use.
const SPECIAL_TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Names that only the request's own parameters may set.
const RESERVED: [&str; 4] = ["messages", "chat_template", "tokenize", "conversation"];

/// What is the same for every request of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    special_tokens: Vec<(String, Value)>,
    kwargs: Vec<(String, Value)>,
}

impl Defaults {
    pub(super) fn new(
        tokenizer_config: &serde_json::Value,
        kwargs: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, ModelError> {
        let token = |name: &str| {
            let token = tokenizer_config.get(name)?;
            let text = token.as_str().or_else(|| token.get("content").and_then(serde_json::Value::as_str))?;
            Some((name.to_owned(), Value::from(text)))
        };
        let configured = tokenizer_config.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let own = configured.filter(|name| name.ends_with("_token") && !SPECIAL_TOKENS.contains(name));
        let special_tokens = SPECIAL_TOKENS.into_iter().chain(own).filter_map(token).collect();
        let text = serde_json::Value::Object(kwargs).to_string();
        let document = json::parse(&text.into()).map_err(|error| ModelError::Invalid {
            file: "default template kwargs",
            reason: error.to_string(),
        })?;
        let kwargs =
            document.root().members().map(|(name, value)| (name.into_owned(), conversation::value(value)));
        Ok(Self { special_tokens, kwargs: kwargs.collect() })
    }

    /// Lists a request's variables; of several with one name the last counts.
    pub(super) fn variables(
        &self,
        request: &ChatRequest,
        messages: Value,
        tools: Value,
    ) -> Result<Vec<(String, Value)>, Error> {
        let params = request.template();
        let mut variables = self.special_tokens.clone();
        variables.push(("documents".to_owned(), Value::from(())));
        variables.extend(self.kwargs.iter().cloned());
        variables.push(("tools".to_owned(), tools));
        let mut set_thinking = params.reasoning_effort.is_some();
        if let Some(kwargs) = params.kwargs {
            for (name, value) in request.document().at(kwargs).members() {
                if RESERVED.contains(&&*name) {
                    return Err(Error::refused("chat_template_kwargs", format!("may not set {name:?}")));
                }
                set_thinking &= name != "enable_thinking";
                let unset = value.is_null() || value.as_str().is_some_and(|text| text == "auto");
                if !unset {
                    variables.push((name.into_owned(), conversation::value(value)));
                }
            }
        }
        if let Some(effort) = &params.reasoning_effort {
            variables.push(("reasoning_effort".to_owned(), Value::from(effort.as_str())));
            if set_thinking {
                variables.push(("enable_thinking".to_owned(), Value::from(effort != "none")));
            }
        }
        let documents =
            params.documents.map(|documents| conversation::value(request.document().at(documents)));
        variables.extend(documents.map(|documents| ("documents".to_owned(), documents)));
        variables
            .push(("add_generation_prompt".to_owned(), Value::from(!params.ending.no_generation_prompt)));
        variables.push(("messages".to_owned(), messages));
        Ok(variables)
    }
}
