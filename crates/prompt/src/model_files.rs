//! A model directory's files, as named bytes.

use std::path::Path;

/// The files of a model that decide how prompts become tokens.
///
/// Absent files are `None`. The bytes are what digests of a model's artefacts are taken of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFiles {
    /// `tokenizer.json`.
    pub tokenizer: Vec<u8>,
    /// `config.json`.
    pub config: Vec<u8>,
    /// `tokenizer_config.json`.
    pub tokenizer_config: Option<Vec<u8>>,
    /// `chat_template.jinja`.
    pub chat_template_jinja: Option<Vec<u8>>,
    /// `chat_template.json`.
    pub chat_template_json: Option<Vec<u8>>,
    /// `preprocessor_config.json`.
    pub preprocessor_config: Option<Vec<u8>>,
    /// `processor_config.json`.
    pub processor_config: Option<Vec<u8>>,
    /// `generation_config.json`.
    pub generation_config: Option<Vec<u8>>,
}

/// Digests of a model's files (blake3 over names, lengths and bytes), in lowercase hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Of the tokenizer.
    pub tokenizer: String,
    /// Of the chat template and what it is rendered with.
    pub template: String,
    /// Of the model's and the processor's configurations.
    pub configs: String,
}

/// Why a model's files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The directory is not there.
    #[error("model directory {0} does not exist")]
    NoDirectory(String),
    /// A file that every model needs is not there.
    #[error("model directory {directory} has no {file}")]
    NoFile {
        /// The directory.
        directory: String,
        /// The file's name.
        file: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A file is larger than any such file should be.
    #[error("{path} has {bytes} bytes, more than {limit}")]
    TooLarge {
        /// The file.
        path: String,
        /// Its size.
        bytes: u64,
        /// The largest size that is read.
        limit: u64,
    },
    /// A file's content makes no sense.
    #[error("{file} is not valid: {reason}")]
    Invalid {
        /// The file's name.
        file: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The media configuration makes no sense.
    #[error(transparent)]
    Media(#[from] crate::media_config::Error),
}

/// The largest file that is read; the largest tokenizer known has 35 MB.
const FILE_BYTES_MAX: u64 = 256 << 20;

impl ModelFiles {
    /// Reads the files of a model directory, those that it has.
    ///
    /// # Errors
    /// When the directory, `tokenizer.json` or `config.json` is missing, or a file cannot be read.
    pub fn read(directory: &Path) -> Result<Self, ModelError> {
        if !directory.is_dir() {
            return Err(ModelError::NoDirectory(directory.display().to_string()));
        }
        let optional = |file| read(directory, file);
        let required = |file| {
            let missing = || ModelError::NoFile { directory: directory.display().to_string(), file };
            read(directory, file)?.ok_or_else(missing)
        };
        Ok(Self {
            tokenizer: required("tokenizer.json")?,
            config: required("config.json")?,
            tokenizer_config: optional("tokenizer_config.json")?,
            chat_template_jinja: optional("chat_template.jinja")?,
            chat_template_json: optional("chat_template.json")?,
            preprocessor_config: optional("preprocessor_config.json")?,
            processor_config: optional("processor_config.json")?,
            generation_config: optional("generation_config.json")?,
        })
    }

    /// Builds the files of a model from bytes that came otherwise; other names are passed over.
    ///
    /// # Errors
    /// Names the file that is missing.
    pub fn from_named(
        named: impl IntoIterator<Item = (String, Vec<u8>)>,
        origin: &str,
    ) -> Result<Self, ModelError> {
        let mut files = Self::default();
        for (name, bytes) in named {
            match name.as_str() {
                "tokenizer.json" => files.tokenizer = bytes,
                "config.json" => files.config = bytes,
                "tokenizer_config.json" => files.tokenizer_config = Some(bytes),
                "chat_template.jinja" => files.chat_template_jinja = Some(bytes),
                "chat_template.json" => files.chat_template_json = Some(bytes),
                "preprocessor_config.json" => files.preprocessor_config = Some(bytes),
                "processor_config.json" => files.processor_config = Some(bytes),
                "generation_config.json" => files.generation_config = Some(bytes),
                _ => {}
            }
        }
        let missing = |file| ModelError::NoFile { directory: origin.to_owned(), file };
        match (files.tokenizer.is_empty(), files.config.is_empty()) {
            (true, _) => Err(missing("tokenizer.json")),
            (_, true) => Err(missing("config.json")),
            _ => Ok(files),
        }
    }

    /// Digests what turns a request into tokens.
    #[must_use]
    pub fn digests(&self) -> Digests {
        let digest = |names: &[&str]| {
            let mut hasher = blake3::Hasher::new();
            for (name, bytes) in self.named().filter(|(name, _)| names.contains(name)) {
                hasher.update(name.as_bytes()).update(&(bytes.len() as u64).to_le_bytes()).update(bytes);
            }
            hasher.finalize().to_hex().to_string()
        };
        Digests {
            tokenizer: digest(&["tokenizer.json"]),
            template: digest(&["tokenizer_config.json", "chat_template.jinja", "chat_template.json"]),
            configs: digest(&["config.json", "preprocessor_config.json", "processor_config.json"]),
        }
    }

    /// Lists the files that are there, by name, for digests.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        let optional = [
            ("tokenizer_config.json", &self.tokenizer_config),
            ("chat_template.jinja", &self.chat_template_jinja),
            ("chat_template.json", &self.chat_template_json),
            ("preprocessor_config.json", &self.preprocessor_config),
            ("processor_config.json", &self.processor_config),
            ("generation_config.json", &self.generation_config),
        ];
        let present = optional.into_iter().filter_map(|(name, bytes)| Some((name, bytes.as_deref()?)));
        [("tokenizer.json", self.tokenizer.as_slice()), ("config.json", self.config.as_slice())]
            .into_iter()
            .chain(present)
    }
}

fn read(directory: &Path, file: &'static str) -> Result<Option<Vec<u8>>, ModelError> {
    let path = directory.join(file);
    let failed = |source| ModelError::Read { path: path.display().to_string(), source };
    match std::fs::metadata(&path) {
        Ok(found) if found.len() > FILE_BYTES_MAX => {
            let path = path.display().to_string();
            Err(ModelError::TooLarge { path, bytes: found.len(), limit: FILE_BYTES_MAX })
        }
        Ok(_) => std::fs::read(&path).map(Some).map_err(failed),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
