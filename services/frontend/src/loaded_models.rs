//! Models loaded from directories, and the options under which they are.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::Context;
use identity::ModelName;
use membership::Rendering;
use membership::card::{Artefacts, ContentFormat, TemplateOptions};
use prompt::{Digests, Kwargs, Model, ModelFiles, ModelOptions};

use crate::config::{Config, ModelConfig};

/// Models whose files are loaded; several frontends of a process share them.
pub type LoadedModels = HashMap<ModelName, LoadedModel>;

/// A model of an own directory. Its files stay, to be loaded anew where its workers say other options.
#[derive(Clone, Debug)]
pub struct LoadedModel {
    pub(crate) prompt: Arc<Model>,
    pub(crate) files: Arc<ModelFiles>,
    pub(crate) rendering: Arc<Rendering>,
}

/// How engines were told to process media, by model, where the configuration knows better than cards.
#[derive(Clone, Debug, Default)]
pub(crate) struct MediaOverrides(Arc<BTreeMap<String, Kwargs>>);

impl MediaOverrides {
    pub(crate) fn new(config: &Config) -> Self {
        Self(Arc::new(config.media_kwargs.clone()))
    }

    /// Returns what holds for a model of such files whose workers say `told`.
    pub(crate) fn rendering(
        &self,
        model: &ModelName,
        told: &TemplateOptions,
        artefacts: Artefacts,
    ) -> Rendering {
        let mut template = told.clone();
        let own = self.0.get(model.as_str());
        if let Some(kwargs) = own {
            template.media_kwargs = kwargs.to_text();
        }
        Rendering { artefacts, template, own_media_kwargs: own.is_some() }
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
        let files = Arc::new(ModelFiles::read(&model.dir)?);
        let rendering = overrides.rendering(&name, &TemplateOptions::default(), digests(&files));
        let prompt = load(&name, &files, &rendering.template)?;
        anyhow::Ok((name, LoadedModel { prompt, files, rendering: Arc::new(rendering) }))
    };
    let named = config
        .models
        .iter()
        .map(|model| load(model).with_context(|| format!("model {} cannot be loaded", model.name)));
    named.collect()
}

/// Takes the digests of files, as cards have them.
pub(crate) fn digests(files: &ModelFiles) -> Artefacts {
    let Digests { tokenizer, template, configs } = files.digests();
    Artefacts { tokenizer, template, configs }
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
        let rendering = |model| overrides.rendering(&ModelName::new(model), &told, Artefacts::default());
        assert_eq!(rendering("m").template.media_kwargs, "{\"a\":1}");
        assert_eq!((rendering("n").template, rendering("n").own_media_kwargs), (told.clone(), false));
    }

    #[test]
    fn options_that_make_no_sense_are_named() {
        let options = TemplateOptions { media_kwargs: "[]".to_owned(), ..TemplateOptions::default() };
        let error = format!("{:#}", model_options(&options).unwrap_err());
        assert_eq!(error, "the workers' media processor arguments: \"[]\" is not a JSON object");
    }
}
