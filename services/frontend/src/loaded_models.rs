//! Models loaded from directories, and the options under which they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Context;
use identity::ModelName;
use membership::card::{ContentFormat, TemplateOptions};
use prompt::{Kwargs, Model, ModelFiles, ModelOptions};

use crate::config::{Config, ModelConfig};

/// Models whose files are loaded; several frontends of a process share them.
pub type LoadedModels = HashMap<ModelName, LoadedModel>;

/// A model of an own directory. Its files stay, to be loaded anew where its workers say other options.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    pub(crate) prompt: Arc<Model>,
    pub(crate) files: Arc<ModelFiles>,
    pub(crate) options: TemplateOptions,
}

/// How engines were told to process media, by model, where the configuration knows better than cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct MediaOverrides(Arc<BTreeMap<String, Kwargs>>);

impl MediaOverrides {
    pub(crate) fn new(config: &Config) -> Self {
        Self(Arc::new(config.media_kwargs.clone()))
    }

    /// Returns the options that hold for a model whose workers say `told`.
    pub(crate) fn over(&self, model: &ModelName, told: &TemplateOptions) -> TemplateOptions {
        let mut options = told.clone();
        if let Some(kwargs) = self.0.get(model.as_str()) {
            options.media_kwargs = kwargs.to_text();
        }
        options
    }
}

/// Loads the models that a configuration names.
///
/// # Errors
/// Names the model and the file that cannot be used.
pub fn load_models(config: &Config) -> anyhow::Result<LoadedModels> {
    let overrides = MediaOverrides::new(config);
    let load = |model: &ModelConfig| {
        let name = ModelName::new(&model.name);
        let options = overrides.over(&name, &TemplateOptions::default());
        let files = Arc::new(ModelFiles::read(&model.dir)?);
        let prompt = load(&name, &files, &options)?;
        anyhow::Ok((name, LoadedModel { prompt, files, options }))
    };
    let named = config
        .models
        .iter()
        .map(|model| load(model).with_context(|| format!("model {} cannot be loaded", model.name)));
    named.collect()
}

/// Loads a model as engines with these options have it.
///
/// # Errors
/// Names the file or the option that makes no sense.
pub(crate) fn load(
    name: &ModelName,
    files: &ModelFiles,
    options: &TemplateOptions,
) -> anyhow::Result<Arc<Model>> {
    let loaded = Model::new(files, model_options(options)?)?;
    if let Some(why) = loaded.template_failure() {
        tracing::warn!(model = %name, why, "chats of this model are routed without credit");
    }
    Ok(Arc::new(loaded))
}

fn model_options(options: &TemplateOptions) -> anyhow::Result<ModelOptions> {
    let kwargs = |text: &str, what: &'static str| text.parse::<Kwargs>().context(what).map(Kwargs::into_map);
    Ok(ModelOptions {
        content_format: match options.content_format {
            ContentFormat::Auto => None,
            ContentFormat::String => Some(prompt::ContentFormat::Text),
            ContentFormat::OpenAi => Some(prompt::ContentFormat::Parts),
        },
        default_template_kwargs: kwargs(&options.default_kwargs, "the workers' default template arguments")?,
        media_kwargs: kwargs(&options.media_kwargs, "the workers' media processor arguments")?,
        ..ModelOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_wins_over_cards() {
        let media_kwargs = BTreeMap::from([("m".to_owned(), "{\"a\":1}".parse().unwrap())]);
        let overrides = MediaOverrides::new(&Config { media_kwargs, ..Config::default() });
        let told = TemplateOptions { media_kwargs: "{\"b\":2}".to_owned(), ..TemplateOptions::default() };
        assert_eq!(overrides.over(&ModelName::new("m"), &told).media_kwargs, "{\"a\":1}");
        assert_eq!(overrides.over(&ModelName::new("n"), &told), told);
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let options = TemplateOptions { media_kwargs: "[]".to_owned(), ..TemplateOptions::default() };
        let error = format!("{:#}", model_options(&options).unwrap_err());
        assert_eq!(error, "the workers' media processor arguments: \"[]\" is not a JSON object");
    }
}
