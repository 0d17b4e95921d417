//! The models that are served, and what this frontend has of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use actors::DirectoryHandle;
use identity::ModelName;
use membership::Rendering;
use prompt::{Model, ModelFiles};
use tokio::sync::watch;

use crate::api_error::ApiError;
use crate::loaded_models::{LoadedModel, LoadedModels};
use crate::model_desk::ModelDesk;

/// The models, by name; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Models {
    directory: DirectoryHandle,
    prompts: Arc<watch::Sender<Arc<HashMap<ModelName, Known>>>>,
    desks: Arc<watch::Sender<Arc<HashMap<ModelName, ModelDesk>>>>,
}

/// A model whose files are here.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) prompt: Arc<Model>,
    /// Where they are from.
    pub(crate) origin: Origin,
    /// The files' digests, and the engines' options under which it is loaded.
    pub(crate) rendering: Arc<Rendering>,
}

/// Where a model's files are from.
#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// An own directory: no others are asked for.
    Own(Arc<ModelFiles>),
    /// An agent.
    Agent,
}

/// What a client's model name stands for here.
#[derive(Clone, Debug)]
pub(crate) struct ServedHere {
    pub(crate) model: ModelName,
    pub(crate) adapter: String,
    /// The distinct block sizes among its workers.
    pub(crate) block_sizes: Vec<u32>,
    /// The longest context among its workers, in tokens; none where one does not say.
    pub(crate) context_tokens_max: Option<u32>,
    /// None where the model's files are not here.
    pub(crate) prompt: Option<Arc<Model>>,
    /// What requests are rendered by.
    pub(crate) rendering: Option<Arc<Rendering>>,
}

/// How long a model that has just appeared may take to be served.
const OPENING_MAX: Duration = Duration::from_secs(2);

impl Models {
    pub(crate) fn new(directory: DirectoryHandle, loaded: LoadedModels) -> Self {
        let known = |(name, loaded)| {
            let LoadedModel { prompt, files, rendering } = loaded;
            (name, Known { prompt, origin: Origin::Own(files), rendering })
        };
        let prompts = Arc::new(loaded.into_iter().map(known).collect());
        Self {
            directory,
            prompts: Arc::new(watch::Sender::new(prompts)),
            desks: Arc::new(watch::Sender::new(Arc::default())),
        }
    }

    /// Finds what a name stands for; 404 if nobody serves it.
    pub(crate) fn resolve(&self, name: Option<&str>) -> Result<ServedHere, ApiError> {
        let fleet = self.directory.fleet();
        let Some(name) = name else {
            // Engines with one model take requests that name none.
            let mut models = fleet.models();
            return match (models.next(), models.next()) {
                (Some(only), None) => Ok(self.here(only, String::new(), &fleet)),
                _ => Err(ApiError::bad_request("missing_parameter", "`model` is required").param("model")),
            };
        };
        if let Some(served) = fleet.served(name) {
            return Ok(self.here(&served.model, served.adapter.clone(), &fleet));
        }
        if self.prompts.borrow().contains_key(&ModelName::new(name)) {
            return Err(ApiError::unavailable(
                "no_worker",
                format!("no worker serves the model `{name}` now"),
            ));
        }
        if fleet.version() == 0 {
            return Err(ApiError::unavailable("no_worker", "no worker is known yet"));
        }
        let message = format!("the model `{name}` does not exist");
        Err(ApiError::not_found("model_not_found", message).param("model"))
    }

    fn here(&self, model: &ModelName, adapter: String, fleet: &actors::Fleet) -> ServedHere {
        let known = self.known(model);
        ServedHere {
            model: model.clone(),
            adapter,
            block_sizes: fleet.block_sizes(model),
            context_tokens_max: fleet.context_tokens_max(model),
            rendering: known.as_ref().map(|known| Arc::clone(&known.rendering)),
            prompt: known.map(|known| known.prompt),
        }
    }

    /// Tells what is here of a model.
    pub(crate) fn known(&self, model: &ModelName) -> Option<Known> {
        self.prompts.borrow().get(model).cloned()
    }

    /// Takes in a model.
    pub(crate) fn supply(&self, model: &ModelName, known: Known) {
        self.prompts.send_modify(|prompts| {
            Arc::make_mut(prompts).insert(model.clone(), known);
        });
    }

    /// Tells whether the files of every model that some worker has files of are here.
    pub(crate) fn are_understood(&self) -> bool {
        let (fleet, prompts) = (self.directory.fleet(), Arc::clone(&self.prompts.borrow()));
        let has_files =
            |model| fleet.seats(model).iter().any(|seat| !seat.worker.card.artefacts.tokenizer.is_empty());
        fleet.models().all(|model| prompts.contains_key(model) || !has_files(model))
    }

    /// Finds the actors of a model; one that has just appeared is waited for.
    pub(crate) async fn desk(&self, model: &ModelName) -> Result<ModelDesk, ApiError> {
        let mut opened = self.desks.subscribe();
        let found = opened.wait_for(|desks| desks.contains_key(model));
        let desk = match tokio::time::timeout(OPENING_MAX, found).await {
            Ok(Ok(desks)) => desks.get(model).cloned(),
            Ok(Err(_)) | Err(_) => None,
        };
        desk.ok_or_else(|| {
            ApiError::unavailable("no_worker", format!("the model `{model}` is not served yet"))
        })
    }

    /// Lists the actors of all models.
    pub(crate) fn desks(&self) -> Arc<HashMap<ModelName, ModelDesk>> {
        Arc::clone(&self.desks.borrow())
    }

    /// Adds the actors of a model.
    pub(crate) fn open(&self, desk: &ModelDesk) {
        self.desks.send_modify(|desks| {
            Arc::make_mut(desks).insert(desk.model.clone(), desk.clone());
        });
    }

    pub(crate) const fn directory(&self) -> &DirectoryHandle {
        &self.directory
    }
}
