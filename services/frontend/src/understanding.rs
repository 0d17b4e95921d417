//! From a body to what routing needs of it.

use std::sync::Arc;

use actors::dim_cache::Allowance;
use actors::media_resolver::{Asker, Elsewhere, InBody, Item, Resolved};
use actors::{MediaResolver, Preprocessor};
use bytes::Bytes;
use identity::{KeyScope, MediaKey, ModelName};
use membership::Rendering;
use ports::Clock;
use prompt::{
    ChatRequest, CompletionRequest, Fallback, LearnedCount, Params, PrepareOptions, Prepared, TenantKey,
};

use crate::api_error::ApiError;
use crate::config::Tenancy;
use crate::homework::Homework;
use crate::late_payload::{self, LatePayload};
use crate::lessons::Lessons;
use crate::models::{Models, ServedHere};
use crate::payload::Payload;

/// A request, ready to be placed and forwarded.
#[derive(Debug)]
pub(crate) struct Understood {
    pub(crate) model: ModelName,
    pub(crate) adapter: String,
    pub(crate) params: Params,
    /// Whether the engine keeps the prompt apart from others'.
    pub(crate) salted: bool,
    pub(crate) prepared: Prepared,
    /// What it is prepared by; none where the model's files are not here.
    pub(crate) rendering: Option<Arc<Rendering>>,
    /// Why the prompt could not be predicted to its end.
    pub(crate) fallback: Option<&'static str>,
    /// Images whose counts are learned; none where all are computed.
    pub(crate) homework: Option<Arc<Homework>>,
    /// Whether the model's layers keep less than the whole context.
    pub(crate) hybrid: bool,
    /// What the body waits for, where media were not known in time; `payload` is empty then.
    pub(crate) late: Option<Box<LatePayload>>,
    pub(crate) items: Vec<Item>,
    pub(crate) payload_free: Vec<MediaKey>,
    /// Whether `usage` speaks of the one prompt that was predicted.
    pub(crate) one_prompt: bool,
    /// The body for the engine.
    pub(crate) payload: Payload,
}

impl Understood {
    /// Composes what a request for one prompt tells beside its body and its media.
    fn new(served: ServedHere, prepared: Prepared, params: &Params, salt: Option<&str>) -> Self {
        Self {
            hybrid: served.prompt.is_some_and(|model| model.facts().hybrid_attention),
            model: served.model,
            adapter: served.adapter,
            params: params.clone(),
            salted: salt.is_some() || params.cache_salt.is_some(),
            rendering: served.rendering,
            fallback: prepared.fallback.map(Fallback::as_str),
            prepared,
            homework: None,
            late: None,
            items: Vec::new(),
            payload_free: Vec::new(),
            one_prompt: true,
            payload: Payload::default(),
        }
    }
}

/// Turns bodies into placements' questions; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    pub(crate) models: Models,
    pub(crate) media: MediaResolver,
    pub(crate) lessons: Lessons,
    pub(crate) pool: Preprocessor,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) secret: Arc<str>,
    pub(crate) tenancy: Tenancy,
}

/// How far a chat request got without I/O.
enum Step {
    Done(Box<Understood>),
    LookUp(Box<(ChatRequest, InBody)>),
}

impl Reader {
    /// Reads a chat request: one job for what is in the body, a second one only if media had to be looked up.
    ///
    /// Where it is not to be forwarded, no media are fetched that facts tell enough of.
    pub(crate) async fn chat(
        &self,
        body: Bytes,
        (tenant, allowance): (&str, &Allowance),
        forwarded: bool,
    ) -> Result<Understood, ApiError> {
        let (reader, bytes, key) = (self.clone(), body.len(), self.key(tenant));
        let own = key.clone();
        let first = move || {
            let request = ChatRequest::parse(&body)?;
            let in_body = reader.media.read_body(&request)?;
            if Resolved::needs_look_up(&request) {
                return Ok(Step::LookUp(Box::new((request, in_body))));
            }
            let resolved = Resolved::join(&request, in_body, Elsewhere::default());
            reader
                .prepare(&request, resolved, own.as_ref())
                .map(|understood| Step::Done(Box::new(understood)))
        };
        match self.pool.run(bytes, first).await? {
            Ok(Step::Done(understood)) => Ok(*understood),
            Ok(Step::LookUp(step)) => self.look_up(*step, (tenant, key), (allowance, forwarded)).await,
            Err(error) => Err(error),
        }
    }

    /// Looks up what is not in a body, as far as the budget goes.
    async fn look_up(
        &self,
        (request, in_body): (ChatRequest, InBody),
        (tenant, key): (&str, Option<TenantKey>),
        (allowance, forwarded): (&Allowance, bool),
    ) -> Result<Understood, ApiError> {
        // A model nobody serves is said before anything is fetched.
        let model = self.models.resolve(request.model())?.model;
        let asker = Asker { tenant, model: &model, bytes: forwarded, allowance };
        let (elsewhere, late) = self.media.look_up(&request, asker).await?;
        let resolved = Resolved::join(&request, in_body, elsewhere);
        self.media.remember(&request, &resolved, tenant).await;
        let (reader, early, bytes) = (self.clone(), resolved.clone(), request.body().len());
        let own = key.clone();
        let job =
            move || reader.prepare(&request, early, own.as_ref()).map(|understood| (understood, request));
        let (understood, request) = self.pool.run(bytes, job).await??;
        Ok(match late {
            None => understood,
            Some(late) => {
                let tenant = tenant.to_owned();
                let late = Box::new(LatePayload { request, resolved, late, key, tenant });
                Understood { payload: Payload::default(), late: Some(late), ..understood }
            }
        })
    }

    /// Reads a completion request; of several prompts the first decides where all go.
    pub(crate) async fn completion(&self, body: Bytes, tenant: &str) -> Result<Understood, ApiError> {
        let (reader, bytes, key) = (self.clone(), body.len(), self.key(tenant));
        let job = move || {
            let request = CompletionRequest::parse(&body)?;
            let served = reader.models.resolve(request.model())?;
            let salt = key.map(|key| key.cache_salt(request.params().cache_salt.as_deref()));
            let options = reader.options(&served, salt.as_deref(), &[]);
            let first =
                served.prompt.as_ref().and_then(|model| model.prepare_completion(&request, &options).next());
            let prepared = first.unwrap_or_else(|| unknown(body.len()));
            Ok(Understood {
                payload: match &salt {
                    Some(salt) => Payload::new(request.outline_salted(salt)?, Vec::new()),
                    None => Payload::whole(body),
                },
                one_prompt: request.prompts().len() == 1,
                ..Understood::new(served, prepared, request.params(), salt.as_deref())
            })
        };
        self.pool.run(bytes, job).await?
    }

    fn prepare(
        &self,
        request: &ChatRequest,
        resolved: Resolved,
        key: Option<&TenantKey>,
    ) -> Result<Understood, ApiError> {
        let served = self.models.resolve(request.model())?;
        self.media.check_sizes(request, &resolved)?;
        let salt = key.map(|key| key.cache_salt(request.params().cache_salt.as_deref()));
        let resolved = match key {
            Some(key) => resolved.for_tenant(request, key),
            None => resolved,
        };
        let facts = &resolved.facts;
        let homework = served
            .prompt
            .as_deref()
            .and_then(|model| Homework::of((&served.model, model), facts, &self.models, &self.lessons));
        let learned = homework.as_ref().map_or(&[][..], |homework| &homework.counts);
        let prepared = match &served.prompt {
            Some(model) => model.prepare(request, facts, &self.options(&served, salt.as_deref(), learned))?,
            None => unknown(request.body().len()),
        };
        let homework = homework.map(|homework| homework.prepared(&served.model, &prepared, &self.lessons));
        Ok(Understood {
            payload: late_payload::spell(request, &resolved.edits, resolved.handed, salt.as_deref())?,
            homework,
            items: resolved.items,
            payload_free: resolved.payload_free,
            ..Understood::new(served, prepared, request.params(), salt.as_deref())
        })
    }

    /// The tenant's own namespace, where tenants are isolated.
    fn key(&self, tenant: &str) -> Option<TenantKey> {
        (self.tenancy == Tenancy::Isolated).then(|| TenantKey::derive(&self.secret, tenant))
    }

    /// What a prompt is prepared with; without a salt of the tenant's the client's own holds.
    fn options<'a>(
        &'a self,
        served: &'a ServedHere,
        salt: Option<&'a str>,
        learned: &'a [LearnedCount],
    ) -> PrepareOptions<'a> {
        let cache_salt = salt.unwrap_or_default();
        let scope = KeyScope { secret: &self.secret, lora_name: &served.adapter, cache_salt };
        let unix_seconds = i64::try_from(self.clock.wall_ms() / 1000).unwrap_or(i64::MAX);
        let clock = prompt::Clock { unix_seconds, utc_offset_seconds: 0 };
        let context_tokens_max = served.context_tokens_max;
        PrepareOptions { block_sizes: &served.block_sizes, scope, clock, context_tokens_max, learned }
    }
}

/// What is said of a prompt whose model's files are not here: about four bytes are a token.
fn unknown(bytes: usize) -> Prepared {
    let mut prepared = Prepared { fallback: Some(Fallback::Template), ..Prepared::default() };
    prepared.routing.prompt_tokens = u32::try_from(bytes / 4).unwrap_or(u32::MAX);
    prepared
}
