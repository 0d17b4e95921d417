//! Engines' own names for the images of a request.

use std::sync::Arc;

use actors::header_cache::Version;
use actors::media_resolver::Item;
use actors::{Quest, Riddle};
use identity::{Holder, ModelName};
use prompt::Prepared;

use crate::shared::Shared;

/// What a request has to do with the names that engines give to images which they fetch themselves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// The prompt, where names are missing in it.
    riddle: Option<Arc<Riddle>>,
    /// The versions whose names its prediction rests on.
    used: Vec<Version>,
}

impl Names {
    pub(crate) fn of(model: &ModelName, prepared: &mut Prepared, items: &[Item]) -> Self {
        let passed = || items.iter().filter_map(|item| Some((item.index, item.passed.as_ref()?)));
        let used = passed().filter(|(_, passed)| passed.id.is_some() && !passed.given);
        let used = used.filter_map(|(_, passed)| passed.version).collect();
        let riddle = prepared.nameless.take().map(|nameless| {
            let versions = passed().filter_map(|(index, passed)| Some((index, passed.version?))).collect();
            Arc::new(Riddle { model: model.clone(), nameless, versions })
        });
        Self { riddle, used }
    }
}

impl Shared {
    /// Asks for the names that a request's holder will give to its images.
    pub(crate) fn ask_names(&self, names: &Names, holder: &Holder, block_size: u32) -> Option<Quest> {
        let riddle = Arc::clone(names.riddle.as_ref()?);
        Some(self.names.begin(riddle, holder.clone(), block_size))
    }

    /// Forgets the names that a wrong prediction rested on.
    pub(crate) fn distrust(&self, names: &Names, model: &ModelName) {
        self.names.distrust(model, &names.used);
    }
}
