//! A model: everything between a request and its tokens.

mod variables;

use media_geometry::{Expansion, Geometry, ImageSize, Refused};
use placement::Confidence;

use crate::attention;
use crate::chat_request::ChatRequest;
use crate::completion_request::{CompletionPrompt, CompletionRequest};
use crate::conversation::{self, Rules};
use crate::error::Error;
use crate::expander::{Expander, Media, PlaceholderIds};
use crate::fallback::Fallback;
use crate::media_config::{self, MediaFiles};
use crate::model_files::{ModelError, ModelFiles};
use crate::params::Params;
use crate::placeholder_text::PlaceholderText;
use crate::prepared::{MediaFact, PrepareOptions, Prepared, Prompt};
use crate::segment_cache::SegmentCache;
use crate::template::{Clock, ContentFormat, RenderError, Template};
use crate::template_choice::TemplateChoice;
use crate::tokeniser::{Tokeniser, TokenizeError};
use variables::Defaults;

/// What a model's workers were told beside its files.
#[derive(Clone, Debug)]
pub struct ModelOptions {
    /// How the template takes content (`--chat-template-content-format`); found out from the template by default.
    pub content_format: Option<ContentFormat>,
    /// The chat template to use instead of the model's own (`--chat-template`).
    pub chat_template: Option<String>,
    /// Template variables that requests may override (`--default-chat-template-kwargs`).
    pub default_template_kwargs: serde_json::Map<String, serde_json::Value>,
    /// How the engine was told to process media (`--mm-processor-kwargs`): it changes counts, and no identity shows it.
    pub media_kwargs: serde_json::Map<String, serde_json::Value>,
    /// Whether placeholders stay where the parts stood (`--interleave-mm-strings`).
    pub interleave_media_text: bool,
    /// Whether tools are hidden when `tool_choice` is `none` (`--exclude-tools-when-tool-choice-none`).
    pub hide_unused_tools: bool,
    /// The context length in tokens (`--max-model-len`); the model's own by default.
    pub context_length: Option<u32>,
    /// Size of the segment cache, in bytes.
    pub segment_cache_bytes_max: u64,
    /// Seed of the segment cache's hash, so that clients can't aim at its buckets.
    pub segment_cache_seed: u64,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            content_format: None,
            chat_template: None,
            default_template_kwargs: serde_json::Map::new(),
            media_kwargs: serde_json::Map::new(),
            interleave_media_text: false,
            hide_unused_tools: false,
            context_length: None,
            segment_cache_bytes_max: 128 << 20,
            segment_cache_seed: 0,
        }
    }
}

/// A loaded model; shared by all threads.
#[derive(Debug)]
pub struct Model {
    templates: Templates,
    tokeniser: Tokeniser,
    expander: Expander,
    rules: Rules,
    defaults: Defaults,
    facts: ModelFacts,
}

#[derive(Debug, Default)]
struct Templates {
    plain: Option<Template>,
    tools: Option<Template>,
    /// Why the model has no template that can be used.
    failure: Option<String>,
}

/// What a model's configuration says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFacts {
    /// `config.json:model_type`.
    pub model_type: String,
    /// The longest prompt and answer together, in tokens, where it is configured.
    pub context_length: Option<u32>,
    /// The tokens that end an answer.
    pub eos_token_ids: Vec<u32>,
    /// Whether some layers keep less than the whole context: what the others keep overstates what is reused.
    pub hybrid_attention: bool,
}

impl Model {
    /// Loads a model.
    ///
    /// A template that cannot be compiled does not fail the model: its chats are then routed without credit
    /// ([`Model::template_failure`]).
    ///
    /// # Errors
    /// When a file's content makes no sense.
    pub fn new(files: &ModelFiles, options: ModelOptions) -> Result<Self, ModelError> {
        let config = json("config.json", Some(&files.config))?;
        let tokenizer_config = json("tokenizer_config.json", files.tokenizer_config.as_deref())?;
        let processor_config = json("processor_config.json", files.processor_config.as_deref())?;
        let generation_config = json("generation_config.json", files.generation_config.as_deref())?;
        let cache = SegmentCache::new(options.segment_cache_bytes_max, options.segment_cache_seed);
        let tokeniser = Tokeniser::load(&files.tokenizer, &tokenizer_config, cache)?;
        let mut facts = ModelFacts::read(&config, &generation_config, &tokenizer_config);
        facts.context_length = options.context_length.or(facts.context_length);
        let geometry = geometry(files, options.media_kwargs)?;
        let configs = [&config, &processor_config, &tokenizer_config];
        let ids = PlaceholderIds::resolve(&configs, geometry.as_ref(), |name| tokeniser.token_id(name));
        let expander = Expander::new(geometry, ids, &tokeniser);
        let choice = match options.chat_template {
            Some(template) => TemplateChoice { plain: Some(template), tools: None },
            None => TemplateChoice::of(files, &tokenizer_config)?,
        };
        let templates = Templates::compile(&choice);
        let detected = templates.plain.as_ref().map_or(ContentFormat::Text, Template::format);
        let rules = Rules {
            format: options.content_format.unwrap_or(detected),
            interleave: options.interleave_media_text,
            placeholders: PlaceholderText::of(&facts.model_type),
            hide_unused_tools: options.hide_unused_tools,
        };
        let defaults = Defaults::new(&tokenizer_config, options.default_template_kwargs)?;
        Ok(Self { templates, tokeniser, expander, rules, defaults, facts })
    }

    /// Prepares a chat request for routing.
    ///
    /// # Errors
    /// When an engine would answer the request with 400.
    pub fn prepare(
        &self,
        request: &ChatRequest,
        facts: &[MediaFact],
        options: &PrepareOptions<'_>,
    ) -> Result<Prepared, Error> {
        let prompt = self.bounded_prompt(request, facts, options)?;
        Ok(self.keyed(prompt, facts, request.params(), options))
    }

    /// Prepares the prompts of a completion request for routing, each when it is asked for.
    pub fn prepare_completion(
        &self,
        request: &CompletionRequest,
        options: &PrepareOptions<'_>,
    ) -> impl Iterator<Item = Prepared> {
        let (params, context) = (request.params(), options.context_tokens_max);
        let prompts = request.prompts().iter();
        prompts.map(move |prompt| {
            self.keyed(self.bounded_completion_prompt(prompt, params, context), &[], params, options)
        })
    }

    /// Renders and tokenises a chat request, its media expanded.
    ///
    /// # Errors
    /// When an engine would answer the request with 400.
    pub fn prompt(&self, request: &ChatRequest, facts: &[MediaFact], clock: Clock) -> Result<Prompt, Error> {
        self.bounded_prompt(request, facts, &PrepareOptions { clock, ..PrepareOptions::default() })
    }

    fn bounded_prompt(
        &self,
        request: &ChatRequest,
        facts: &[MediaFact],
        options: &PrepareOptions<'_>,
    ) -> Result<Prompt, Error> {
        let text = match self.try_render(request, options.clock)? {
            Ok(text) => text,
            Err(failure) => {
                let guess = Prompt::guess(request.body().len() / 4, Fallback::Template);
                return Ok(Prompt { failure: Some(failure), ..guess });
            }
        };
        if let Some(guess) = self.too_long(&text, request.params(), options.context_tokens_max) {
            return Ok(guess);
        }
        let special = request.params().reading.add_special_tokens.unwrap_or(false);
        let parts = request.media();
        let Ok(slotted) = self.expander.tokenise(&text, parts, special, &self.tokeniser) else {
            return Ok(Prompt::guess(text.len() / 4, Fallback::Tokenizer));
        };
        let media = Media { parts, facts, learned: options.learned, custom: request.has_media_kwargs() };
        let prompt = self.expander.place(slotted, media, &self.tokeniser).into();
        Ok(self.truncated(prompt, request.params()))
    }

    /// Tokenises one prompt of a completion request.
    #[must_use]
    pub fn completion_prompt(&self, prompt: &CompletionPrompt, params: &Params) -> Prompt {
        self.bounded_completion_prompt(prompt, params, None)
    }

    fn bounded_completion_prompt(
        &self,
        prompt: &CompletionPrompt,
        params: &Params,
        context_tokens_max: Option<u32>,
    ) -> Prompt {
        let tokens = match prompt {
            CompletionPrompt::Tokens(tokens) => tokens.clone(),
            CompletionPrompt::Text(text) => {
                if let Some(guess) = self.too_long(text, params, context_tokens_max) {
                    return guess;
                }
                let special = params.reading.add_special_tokens.unwrap_or(true);
                match self.tokeniser.encode(text, special) {
                    Ok(tokens) => tokens,
                    Err(_) => return Prompt::guess(text.len() / 4, Fallback::Tokenizer),
                }
            }
        };
        let keyed_tokens = tokens.len();
        self.truncated(Prompt { tokens, keyed_tokens, ..Prompt::default() }, params)
    }

    /// Renders a chat request's text, or nothing where the template cannot be rendered here.
    ///
    /// # Errors
    /// When an engine would answer the request with 400, what the template raises included.
    pub fn render(&self, request: &ChatRequest, clock: Clock) -> Result<Option<String>, Error> {
        self.try_render(request, clock).map(Result::ok)
    }

    /// Renders a chat request's text, or says why the template cannot be rendered here.
    fn try_render(&self, request: &ChatRequest, clock: Clock) -> Result<Result<String, String>, Error> {
        let Some(template) = self.templates.choose(request.has_tools()) else {
            return Ok(Err(self.templates.failure.clone().unwrap_or_default()));
        };
        let conversation = conversation::read(request, &self.rules, template)?;
        let variables = self.defaults.variables(request, conversation.messages, conversation.tools)?;
        match (template.render(variables, clock), conversation.open_end) {
            (Ok(text), None) => Ok(Ok(text)),
            (Ok(text), Some(end)) => conversation::cut_at_open_end(text, &end).map(Ok),
            (Err(RenderError::Raised(error)), _) => Err(error),
            (Err(RenderError::Failed(failure)), _) => Ok(Err(failure)),
        }
    }

    /// Tokenises a text in which special tokens may be spelled.
    ///
    /// # Errors
    /// When the tokeniser fails; its reason says why.
    pub fn tokenize(&self, text: &str, add_special_tokens: bool) -> Result<Vec<u32>, TokenizeError> {
        self.tokeniser.encode(text, add_special_tokens)
    }

    /// Returns the text of some tokens.
    ///
    /// # Errors
    /// When the tokeniser fails; its reason says why.
    pub fn detokenize(&self, tokens: &[u32], skip_special_tokens: bool) -> Result<String, TokenizeError> {
        self.tokeniser.decode(tokens, skip_special_tokens)
    }

    /// Returns a token's string in the vocabulary.
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.tokeniser.token(id)
    }

    /// Counts the vocabulary, added tokens included.
    #[must_use]
    pub fn vocabulary_size(&self) -> usize {
        self.tokeniser.vocabulary_size()
    }

    /// Returns what the configuration says of the model.
    #[must_use]
    pub const fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// Returns the image geometry, where the family is known.
    #[must_use]
    pub const fn geometry(&self) -> Option<&Geometry> {
        self.expander.geometry()
    }

    /// Returns the token that stands for images, where it is known.
    #[must_use]
    pub const fn image_placeholder(&self) -> Option<u32> {
        self.expander.ids().image
    }

    /// Expands a request's images.
    #[must_use]
    pub fn expand(&self, sizes: &[ImageSize]) -> Vec<Result<Expansion, Refused>> {
        self.expander.geometry().map(|geometry| geometry.expand(sizes)).unwrap_or_default()
    }

    /// Says why the model's chat template cannot be used, if it can't.
    #[must_use]
    pub fn template_failure(&self) -> Option<&str> {
        self.templates.failure.as_deref()
    }

    /// Returns how the template takes content.
    #[must_use]
    pub const fn content_format(&self) -> ContentFormat {
        self.rules.format
    }

    /// Tells whether texts are tokenised by cached segments.
    #[must_use]
    pub const fn is_segmented(&self) -> bool {
        self.tokeniser.is_segmented()
    }

    /// Returns the segment cache's size in bytes.
    #[must_use]
    pub fn segment_cache_bytes(&self) -> u64 {
        self.tokeniser.cache().bytes()
    }

    /// Guesses about a text that no context holds.
    fn too_long(&self, text: &str, params: &Params, context_tokens_max: Option<u32>) -> Option<Prompt> {
        let tokens_max = context_tokens_max.filter(|&max| self.tokeniser.exceeds(text, max))?;
        let cut = params.reading.truncate_prompt_tokens.is_some();
        let fallback = if cut { Fallback::Truncated } else { Fallback::TooLong };
        Some(Prompt::guess(usize::try_from(tokens_max).unwrap_or(usize::MAX).saturating_add(1), fallback))
    }

    /// Names a prompt's blocks, within what the engine will keep of it.
    fn keyed(
        &self,
        mut prompt: Prompt,
        facts: &[MediaFact],
        params: &Params,
        options: &PrepareOptions<'_>,
    ) -> Prepared {
        if let (Some(Fallback::Truncated), Some(kept)) =
            (prompt.fallback, params.reading.truncate_prompt_tokens)
        {
            // What the engine cuts need not fit; −1 keeps what does.
            let fits = || options.context_tokens_max.map(|max| max.saturating_sub(1));
            if let Some(kept) = u32::try_from(kept).ok().or_else(fits) {
                prompt.tokens.truncate(usize::try_from(kept).unwrap_or(usize::MAX));
            }
        }
        let mut scope = options.scope;
        if scope.cache_salt.is_empty() {
            scope.cache_salt = params.cache_salt.as_deref().unwrap_or_default();
        }
        let mut prepared = prompt.with_keys(facts, options.block_sizes, scope);
        if self.facts.hybrid_attention {
            prepared.confidence = prepared.confidence.min(Confidence::Learned);
        }
        prepared
    }

    /// Marks a prompt that the engine will cut.
    fn truncated(&self, mut prompt: Prompt, params: &Params) -> Prompt {
        let kept = match params.reading.truncate_prompt_tokens {
            None => return prompt,
            Some(kept) => u32::try_from(kept).ok().or(self.facts.context_length),
        };
        let fits =
            kept.is_some_and(|kept| u32::try_from(prompt.tokens.len()).is_ok_and(|tokens| tokens <= kept));
        if !fits {
            prompt.keyed_tokens = 0;
            prompt.media.clear();
            prompt.beyond.clear();
            prompt.uncounted = None;
            prompt.fallback.get_or_insert(Fallback::Truncated);
        }
        prompt
    }
}

fn json(file: &'static str, bytes: Option<&[u8]>) -> Result<serde_json::Value, ModelError> {
    let Some(bytes) = bytes else { return Ok(serde_json::Value::Null) };
    serde_json::from_slice(bytes).map_err(|error| ModelError::Invalid { file, reason: error.to_string() })
}

impl Templates {
    fn compile(choice: &TemplateChoice) -> Self {
        let mut templates = Self::default();
        let mut compile = |source: &Option<String>| {
            let compiled = Template::compile(source.as_deref()?);
            compiled.map_err(|error| templates.failure = Some(error.to_string())).ok()
        };
        let (plain, tools) = (compile(&choice.plain), compile(&choice.tools));
        if choice.plain.is_none() && choice.tools.is_none() {
            templates.failure = Some("the model has no chat template".to_owned());
        }
        Self { plain, tools, ..templates }
    }

    fn choose(&self, with_tools: bool) -> Option<&Template> {
        self.tools.as_ref().filter(|_| with_tools).or(self.plain.as_ref())
    }
}

impl ModelFacts {
    fn read(
        config: &serde_json::Value,
        generation: &serde_json::Value,
        tokenizer: &serde_json::Value,
    ) -> Self {
        let text = config.get("text_config").unwrap_or(config);
        let number =
            |from: &serde_json::Value, name: &str| from.get(name).and_then(serde_json::Value::as_u64);
        let context =
            number(text, "max_position_embeddings").or_else(|| number(config, "max_position_embeddings"));
        let context = context.or_else(|| number(tokenizer, "model_max_length"));
        let eos = generation.get("eos_token_id").or_else(|| text.get("eos_token_id"));
        let one = eos.and_then(serde_json::Value::as_u64);
        let many = eos
            .and_then(serde_json::Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(serde_json::Value::as_u64);
        let model_type = config.get("model_type").and_then(serde_json::Value::as_str).unwrap_or_default();
        Self {
            model_type: model_type.to_owned(),
            context_length: context.and_then(|context| u32::try_from(context).ok()),
            hybrid_attention: attention::is_hybrid(config),
            eos_token_ids: one.into_iter().chain(many).filter_map(|id| u32::try_from(id).ok()).collect(),
        }
    }
}

/// Reads the image geometry of a family that is known.
fn geometry(
    files: &ModelFiles,
    kwargs: serde_json::Map<String, serde_json::Value>,
) -> Result<Option<Geometry>, ModelError> {
    let kwargs = serde_json::Value::Object(kwargs).to_string();
    Ok(media_config::geometry_of(&MediaFiles {
        config: &files.config,
        preprocessor: files.preprocessor_config.as_deref(),
        processor: files.processor_config.as_deref(),
        kwargs: Some(kwargs.as_bytes()),
    })?)
}
