//! Look-ups in configuration files, with the reference's precedence.

use serde_json::{Map, Value};

use super::Error;

const CONFIG: &str = "config.json";
const PREPROCESSOR: &str = "preprocessor_config.json";
const PROCESSOR: &str = "processor_config.json";

const KWARGS: &str = "mm-processor-kwargs";

/// The texts that decide a model's media geometry.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediaFiles<'a> {
    /// `config.json`.
    pub config: &'a [u8],
    /// `preprocessor_config.json`.
    pub preprocessor: Option<&'a [u8]>,
    /// `processor_config.json`.
    pub processor: Option<&'a [u8]>,
    /// The keyword arguments that the worker's engine was started with (vLLM's `--mm-processor-kwargs`, JSON).
    pub kwargs: Option<&'a [u8]>,
}

/// A model's configuration files, parsed.
#[derive(Debug)]
pub(super) struct Values {
    config: Map<String, Value>,
    image: Option<Section>,
    processor: Map<String, Value>,
}

/// One object of a file, whose values are read by type.
#[derive(Clone, Debug, Default)]
pub(super) struct Section {
    file: &'static str,
    values: Map<String, Value>,
}

impl Values {
    /// Parses the files; the image processor's section is the nested one where there is one.
    pub(super) fn parse(files: &MediaFiles<'_>) -> Result<Self, Error> {
        let config = object(CONFIG, files.config)?;
        // Saved as one file, a processor may be handed over under either name.
        let whole = files.processor.or(files.preprocessor.filter(|text| nests_image_processor(text)));
        let mut processor = whole.map_or_else(|| Ok(Map::new()), |text| object(PROCESSOR, text))?;
        let mut image = match processor.remove("image_processor") {
            Some(Value::Object(values)) => Some(Section { file: PROCESSOR, values }),
            _ => match files.preprocessor {
                Some(text) => Some(Section { file: PREPROCESSOR, values: object(PREPROCESSOR, text)? }),
                None => None,
            },
        };
        if let (Some(image), Some(kwargs)) = (&mut image, files.kwargs) {
            image.overlay(object(KWARGS, kwargs)?);
        }
        Ok(Self { config, image, processor })
    }

    /// Returns `config.json:model_type`, or an empty string.
    pub(super) fn model_type(&self) -> &str {
        self.config.get("model_type").and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the image processor's section.
    ///
    /// # Errors
    /// When neither file has one: the reference can't be loaded then.
    pub(super) fn image(&self) -> Result<&Section, Error> {
        self.image
            .as_ref()
            .ok_or_else(|| Error::Missing { file: PREPROCESSOR, model_type: self.model_type().to_owned() })
    }

    /// Returns the model's configuration.
    pub(super) fn config(&self) -> Section {
        Section { file: CONFIG, values: self.config.clone() }
    }

    /// Returns what `processor_config.json` says outside of its nested sections.
    pub(super) fn processor(&self) -> Section {
        Section { file: PROCESSOR, values: self.processor.clone() }
    }
}

impl Section {
    /// Returns a value that is neither absent nor null.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.values.get(field).filter(|value| !value.is_null())
    }

    /// Reads an integer that is not negative.
    pub(super) fn integer(&self, field: &str) -> Result<Option<u64>, Error> {
        self.get(field)
            .map(|value| value.as_u64().ok_or_else(|| self.error(field, "an integer of at least 0")))
            .transpose()
    }

    /// Reads a 32-bit integer, with a default.
    pub(super) fn u32(&self, field: &str, default: u32) -> Result<u32, Error> {
        match self.integer(field)? {
            None => Ok(default),
            Some(value) => u32::try_from(value).map_err(|_| self.error(field, "a 32-bit integer")),
        }
    }

    /// Reads a 32-bit integer that may be absent.
    pub(super) fn optional_u32(&self, field: &str) -> Result<Option<u32>, Error> {
        match self.integer(field)? {
            None => Ok(None),
            Some(value) => u32::try_from(value).map(Some).map_err(|_| self.error(field, "a 32-bit integer")),
        }
    }

    /// Reads a side of a square: a number, or an object with equal height and width.
    pub(super) fn side(&self, field: &str, default: u32) -> Result<u32, Error> {
        match self.get(field) {
            Some(Value::Object(_)) => {
                let sides = self.section(field)?;
                match (sides.optional_u32("height")?, sides.optional_u32("width")?) {
                    (Some(height), Some(width)) if height == width => Ok(height),
                    _ => Err(self.error(field, "a square")),
                }
            }
            _ => self.u32(field, default),
        }
    }

    /// Reads an integer, or the first of a list of them.
    pub(super) fn first_u32(&self, field: &str, default: u32) -> Result<u32, Error> {
        match self.get(field).and_then(Value::as_array) {
            Some(list) => {
                let first = list.first().and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok());
                first.ok_or_else(|| self.error(field, "a list of integers"))
            }
            None => self.u32(field, default),
        }
    }

    /// Reads a number.
    pub(super) fn number(&self, field: &str) -> Result<Option<f64>, Error> {
        self.get(field).map(|value| value.as_f64().ok_or_else(|| self.error(field, "a number"))).transpose()
    }

    /// Reads a text.
    pub(super) fn text(&self, field: &str) -> Result<Option<&str>, Error> {
        self.get(field).map(|value| value.as_str().ok_or_else(|| self.error(field, "a text"))).transpose()
    }

    /// Says whether the object is absent or has no values.
    pub(super) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Lays the engine's keyword arguments over the file's values: those for images win over flat ones, objects are merged,
    /// and an edge of `size` that is given hides the file's alias of it.
    fn overlay(&mut self, mut kwargs: Map<String, Value>) {
        if let Some(Value::Object(images)) = kwargs.remove("images_kwargs") {
            kwargs.extend(images);
        }
        for (edge, alias) in [("shortest_edge", "min_pixels"), ("longest_edge", "max_pixels")] {
            if kwargs.get("size").is_some_and(|size| size.get(edge).is_some()) {
                self.values.remove(alias);
            }
        }
        for (field, value) in kwargs {
            match (self.values.get_mut(&field), value) {
                (Some(Value::Object(old)), Value::Object(new)) => old.extend(new),
                (_, value) => {
                    self.values.insert(field, value);
                }
            }
        }
    }

    /// Reads a boolean, with a default.
    pub(super) fn boolean(&self, field: &str, default: bool) -> Result<bool, Error> {
        self.get(field)
            .map_or(Ok(default), |value| value.as_bool().ok_or_else(|| self.error(field, "a boolean")))
    }

    /// Reads a nested object; absent, it is empty.
    pub(super) fn section(&self, field: &str) -> Result<Self, Error> {
        match self.get(field) {
            None => Ok(Self { file: self.file, values: Map::new() }),
            Some(Value::Object(values)) => Ok(Self { file: self.file, values: values.clone() }),
            Some(_) => Err(self.error(field, "an object")),
        }
    }

    pub(super) fn error(&self, field: &str, expected: &'static str) -> Error {
        Error::Value { file: self.file, field: field.to_owned(), expected }
    }
}

fn nests_image_processor(text: &[u8]) -> bool {
    object(PREPROCESSOR, text).is_ok_and(|values| values.get("image_processor").is_some_and(Value::is_object))
}

fn object(file: &'static str, text: &[u8]) -> Result<Map<String, Value>, Error> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(values)) => Ok(values),
        Ok(_) => Err(Error::NotAnObject { file, source: None }),
        Err(source) => Err(Error::NotAnObject { file, source: Some(source) }),
    }
}
