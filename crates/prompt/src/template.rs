//! A model's chat template, compiled once.

mod content_format;
mod python_json;
mod python_methods;
mod python_text;
mod shims;
mod strftime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Value};

use crate::error::Error;

pub use content_format::ContentFormat;
pub use shims::Clock;

/// What a render may cost, in minijinja's units: about one per instruction and per 64 bytes made.
const FUEL: u64 = 4_000_000;

/// The name under which templates are compiled.
const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    format: ContentFormat,
    names_developer: bool,
    names_content: bool,
}

/// Why a template gave no prompt.
#[derive(Debug)]
pub(crate) enum RenderError {
    /// The template raised an exception on purpose: the request is refused.
    Raised(Error),
    /// The template cannot be rendered here; the text says where and why, and quotes no prompt.
    Failed(String),
}

impl Template {
    /// Compiles a template.
    pub(crate) fn compile(source: &str) -> Result<Self, minijinja::Error> {
        let source = shims::adapted(source);
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
        let format = content_format::detect(&source, &syntax)?;
        let names_developer = source.contains("\"developer\"") || source.contains("'developer'");
        let names_content = source.contains("content");
        let mut environment = Environment::new();
        environment.set_syntax(syntax);
        environment.set_debug(false);
        environment.set_fuel(Some(FUEL));
        shims::install(&mut environment);
        environment.add_template_owned(NAME, source)?;
        Ok(Self { environment, format, names_developer, names_content })
    }

    /// Returns how the template takes a message's content.
    pub(crate) const fn format(&self) -> ContentFormat {
        self.format
    }

    /// Tells whether the template names the role `developer`.
    pub(crate) const fn names_developer(&self) -> bool {
        self.names_developer
    }

    /// Tells whether the template names a message's content at all.
    pub(crate) const fn names_content(&self) -> bool {
        self.names_content
    }

    /// Renders a conversation.
    pub(crate) fn render(
        &self,
        variables: Vec<(String, Value)>,
        clock: Clock,
    ) -> Result<String, RenderError> {
        let now = (shims::NOW.to_owned(), clock.to_value());
        let context = Value::from_pairs(variables.into_iter().chain([now]));
        let template =
            self.environment.get_template(NAME).map_err(|error| RenderError::Failed(reason(&error)))?;
        template.render(context).map_err(|error| match shims::raised(&error) {
            Some(message) => RenderError::Raised(Error::Raised { message }),
            None => RenderError::Failed(reason(&error)),
        })
    }
}

/// Says where and why a render failed, without the details that may quote a prompt.
fn reason(error: &minijinja::Error) -> String {
    let line = error.line().map(|line| format!(" at line {line}")).unwrap_or_default();
    format!("the chat template fails{line}: {}", error.kind())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;

    use super::*;
    use crate::{conversation, json};

    fn golden(name: &str) -> serde_json::Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/templates").join(name);
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    #[test]
    fn expressions_print_what_python_prints() {
        let requests = golden("requests.json");
        let turns = requests.as_array().unwrap().iter().find(|request| request["name"] == "turns").unwrap();
        let document = json::parse(&Bytes::from(turns["body"]["messages"].to_string())).unwrap();
        let variables = || {
            let named = |name: &str, value: Value| (name.to_owned(), value);
            let none = || Value::from(());
            let messages = conversation::value(document.root());
            vec![named("messages", messages), named("tools", none()), named("documents", none())]
        };
        let mut differences = Vec::new();
        for (expression, theirs) in golden("expressions_rendered.json").as_object().unwrap() {
            let ours = Template::compile(expression).map(|template| {
                template.render(variables(), Clock { unix_seconds: 1_751_706_487, utc_offset_seconds: 0 })
            });
            let ours = ours.ok().and_then(Result::ok);
            if ours.as_deref() != theirs["text"].as_str() {
                differences.push(format!("{expression}\nours   {ours:?}\ntheirs {theirs}"));
            }
        }
        assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    }
}
