//! Chooses a model's chat templates among the places where they are kept.

use serde_json::Value;

use crate::model_files::{ModelError, ModelFiles};

/// The sources of a model's templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TemplateChoice {
    /// For requests without tools.
    pub(crate) plain: Option<String>,
    /// For requests with tools, where it is another one.
    pub(crate) tools: Option<String>,
}

impl TemplateChoice {
    /// Chooses: `chat_template.jinja`, `chat_template.json`, `tokenizer_config.json`, in this order.
    ///
    /// With tools an engine asks the tokeniser and not the processor, so `chat_template.json` comes last there.
    pub(crate) fn of(files: &ModelFiles, tokenizer_config: &Value) -> Result<Self, ModelError> {
        let jinja =
            files.chat_template_jinja.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let processor = files.chat_template_json.as_deref().map(from_processor).transpose()?.flatten();
        let configured = tokenizer_config.get("chat_template");
        let plain = jinja.clone().or_else(|| processor.clone()).or_else(|| named(configured, &["default"]));
        let tools = jinja.or_else(|| named(configured, &["tool_use", "default"])).or(processor);
        let tools = tools.filter(|tools| plain.as_ref() != Some(tools));
        Ok(Self { plain, tools })
    }
}

fn from_processor(bytes: &[u8]) -> Result<Option<String>, ModelError> {
    let invalid = |error: serde_json::Error| ModelError::Invalid {
        file: "chat_template.json",
        reason: error.to_string(),
    };
    let json: Value = serde_json::from_slice(bytes).map_err(invalid)?;
    Ok(named(json.get("chat_template"), &["default"]))
}

/// Finds the first of some names in a template setting: a string, or a list of named templates.
fn named(setting: Option<&Value>, names: &[&str]) -> Option<String> {
    let setting = setting?;
    if let Some(template) = setting.as_str() {
        return Some(template.to_owned());
    }
    names.iter().find_map(|name| {
        let entry = setting
            .as_array()?
            .iter()
            .find(|entry| entry.get("name").and_then(Value::as_str) == Some(name))?;
        entry.get("template").and_then(Value::as_str).map(str::to_owned)
    })
}
