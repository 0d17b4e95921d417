//! Models whose files are not here, asked of agents, verified against their cards, kept on disk; and those whose workers'
//! options are others than those they were loaded under.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use identity::{ModelName, WorkerId};
use membership::card::Artefacts;
use membership::{Pool, Rendering};
use ports::bus::Message;
use ports::{Bus, Clock};
use prompt::ModelFiles;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;
use wire::files::{File, Request, Response};

use crate::loaded_models::{self, MediaOverrides};
use crate::model_cache::ModelCache;
use crate::models::{Known, Models, Origin};

/// How long an agent may take for one answer.
const DEADLINE: Duration = Duration::from_secs(2);
/// Attempts for each answer: the bus may drop any message.
const ATTEMPTS: u32 = 3;
/// Pause before a model that could not be had is asked for again; doubles.
const PAUSE_MIN: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Files of a model; no model has more kinds.
const FILES_MAX: usize = 16;
/// Bytes of a model's files together.
const BYTES_MAX: u64 = 512 << 20;

/// Supplies models to a frontend.
#[derive(Debug)]
pub(crate) struct ModelSupply {
    pub(crate) namespace: String,
    pub(crate) models: Models,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) overrides: MediaOverrides,
    pub(crate) cache: Option<ModelCache>,
}

/// A model to be loaded.
#[derive(Clone, Debug)]
struct Wanted {
    model: ModelName,
    /// Its files, where they are here already.
    own: Option<Arc<ModelFiles>>,
    rendering: Rendering,
    workers: Vec<WorkerId>,
}

/// When a model is asked for next, after failures.
#[derive(Clone, Copy, Debug)]
struct Patience {
    next_at: Duration,
    pause: Duration,
}

impl ModelSupply {
    /// Supplies each model that appears, and those whose files change, until stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut changed = self.models.directory().changed();
        let mut failed: HashMap<ModelName, Patience> = HashMap::new();
        loop {
            changed.borrow_and_update();
            for wanted in self.wanted() {
                let model = &wanted.model;
                let now = self.clock.now();
                if failed.get(model).is_some_and(|patience| now < patience.next_at) {
                    continue;
                }
                let span = tracing::debug_span!("files", %model);
                let supplied = tokio::select! {
                    supplied = self.supply(&wanted).instrument(span) => supplied,
                    () = stop.cancelled() => return,
                };
                if let Err(cause) = supplied {
                    let pause = failed.get(model).map_or(PAUSE_MIN, |it| (it.pause * 2).min(PAUSE_MAX));
                    let cause = format!("{cause:#}");
                    if failed.contains_key(model) {
                        tracing::debug!(%model, cause, "model files cannot be had yet");
                    } else {
                        tracing::info!(%model, cause, "model files cannot be had yet, routing by load");
                    }
                    failed.insert(model.clone(), Patience { next_at: self.clock.now() + pause, pause });
                } else {
                    failed.remove(model);
                }
            }
            let again = if failed.is_empty() { PAUSE_MAX } else { PAUSE_MIN };
            tokio::select! {
                news = changed.changed() => if news.is_err() { return },
                () = self.clock.sleep(again) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Lists the models that are not here as the heaviest pool's cards have them, with the workers that have their files.
    fn wanted(&self) -> Vec<Wanted> {
        let fleet = self.models.directory().fleet();
        let wanted = fleet.models().filter_map(|model| {
            let here = self.models.known(model);
            let own = match &here {
                Some(Known { origin: Origin::Own(files), .. }) => Some(Arc::clone(files)),
                Some(_) | None => None,
            };
            let usable = |pool: &Pool| match (&own, &here) {
                (Some(_), Some(here)) => here.rendering.suits_files(&pool.key.artefacts),
                _ => is_known(&pool.key.artefacts),
            };
            let Pool { key, workers, .. } = fleet.pools(model).into_iter().find(usable)?;
            let artefacts = match (&own, &here) {
                (Some(_), Some(here)) => here.rendering.artefacts.clone(),
                _ => key.artefacts,
            };
            let rendering = self.overrides.rendering(model, &key.template, artefacts);
            let same = here.is_some_and(|here| *here.rendering == rendering);
            let model = model.clone();
            (!same).then_some(Wanted { model, own, rendering, workers })
        });
        wanted.collect()
    }

    async fn supply(&self, wanted: &Wanted) -> anyhow::Result<()> {
        let model = &wanted.model;
        let (files, origin) = match &wanted.own {
            Some(files) => (Arc::clone(files), Origin::Own(Arc::clone(files))),
            None => (self.files(wanted).await?, Origin::Agent),
        };
        let rendering = Arc::new(wanted.rendering.clone());
        let (name, assumed) = (model.clone(), Arc::clone(&rendering));
        let load = move || loaded_models::load(&name, &files, &assumed.template);
        let prompt = tokio::task::spawn_blocking(load).await.context("loading was interrupted")??;
        self.models.supply(model, Known { prompt, origin, rendering });
        tracing::info!(%model, "model files are here");
        Ok(())
    }

    /// Finds a model's files on disk, or asks its workers' agents for them.
    async fn files(&self, wanted: &Wanted) -> anyhow::Result<Arc<ModelFiles>> {
        let Wanted { model, rendering: Rendering { artefacts, .. }, workers, .. } = wanted;
        let cached = match &self.cache {
            Some(cache) => cache.load(artefacts).await,
            None => None,
        };
        if let Some(files) = cached {
            return Ok(files);
        }
        let files = self.fetch(artefacts, workers).await?;
        if let Some(cache) = &self.cache
            && let Err(cause) = cache.store(artefacts, &files).await
        {
            tracing::warn!(%model, cause = format!("{cause:#}"), "model files are not kept on disk");
        }
        Ok(files)
    }

    /// Asks one worker's agent after the other.
    async fn fetch(&self, artefacts: &Artefacts, workers: &[WorkerId]) -> anyhow::Result<Arc<ModelFiles>> {
        let mut last = anyhow::anyhow!("no worker has the files");
        for worker in workers {
            match self.fetch_from(worker).await {
                Ok(files) if matches(&files, artefacts) => return Ok(Arc::new(files)),
                Ok(_) => last = anyhow::anyhow!("the files of worker {worker} are not those of its card"),
                Err(cause) => last = cause.context(format!("worker {worker}")),
            }
        }
        Err(last)
    }

    async fn fetch_from(&self, worker: &WorkerId) -> anyhow::Result<ModelFiles> {
        let subject = wire::subject::files(&self.namespace, worker);
        let Response::Listing { files } = self.ask(&subject, Request::List).await? else {
            bail!("the agent does not list its files");
        };
        let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.bytes));
        ensure!(files.len() <= FILES_MAX && bytes <= BYTES_MAX, "{} files of {bytes} bytes", files.len());
        let mut named = Vec::new();
        for file in files {
            let content = self.read(&subject, &file).await.with_context(|| file.name.clone())?;
            named.push((file.name, content));
        }
        Ok(ModelFiles::from_named(named, "of the agent")?)
    }

    /// Reads a file chunk by chunk.
    async fn read(&self, subject: &str, file: &File) -> anyhow::Result<Vec<u8>> {
        let size = usize::try_from(file.bytes)?;
        let mut content = Vec::new();
        while content.len() < size {
            let offset = content.len() as u64;
            let read = Request::Read { digest: file.digest, offset };
            match self.ask(subject, read).await? {
                Response::Chunk { bytes } if !bytes.is_empty() => content.extend_from_slice(&bytes),
                Response::Chunk { .. } | Response::Listing { .. } | Response::NoFile => {
                    bail!("the file ends at {offset} of {size} bytes")
                }
            }
        }
        ensure!(content.len() == size, "the file has {} bytes instead of {size}", content.len());
        ensure!(*blake3::hash(&content).as_bytes() == file.digest, "the content has another digest");
        Ok(content)
    }

    async fn ask(&self, subject: &str, request: Request) -> anyhow::Result<Response> {
        let payload = request.encode()?;
        let mut attempt = 1;
        loop {
            let message =
                Message { subject: subject.to_owned(), payload: payload.clone(), ..Message::default() };
            match self.bus.request(message, DEADLINE).await {
                Ok(answer) => return Ok(Response::decode(&answer.payload)?),
                Err(cause) if attempt >= ATTEMPTS => return Err(cause.into()),
                Err(_) => attempt += 1,
            }
        }
    }
}

fn is_known(artefacts: &Artefacts) -> bool {
    !artefacts.tokenizer.is_empty() && !artefacts.configs.is_empty()
}

/// Tells whether files have the digests of a card.
pub(crate) fn matches(files: &ModelFiles, artefacts: &Artefacts) -> bool {
    *artefacts == loaded_models::digests(files)
}
