//! Look-ups in configuration files, with the reference's precedence.

use serde_json::{Map, Value};

use super::Error;

pub(super) const CONFIG: &str = "config.json";
pub(super) const PREPROCESSOR: &str = "preprocessor_config.json";
pub(super) const PROCESSOR: &str = "processor_config.json";

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
    pub(super) fn parse(
        config: &[u8],
        preprocessor: Option<&[u8]>,
        processor: Option<&[u8]>,
    ) -> Result<Self, Error> {
        let config = object(CONFIG, config)?;
        let mut processor = processor.map_or_else(|| Ok(Map::new()), |text| object(PROCESSOR, text))?;
        let image = match processor.remove("image_processor") {
            Some(Value::Object(values)) => Some(Section { file: PROCESSOR, values }),
            _ => match preprocessor {
                Some(text) => Some(Section { file: PREPROCESSOR, values: object(PREPROCESSOR, text)? }),
                None => None,
            },
        };
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

fn object(file: &'static str, text: &[u8]) -> Result<Map<String, Value>, Error> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(values)) => Ok(values),
        Ok(_) => Err(Error::NotAnObject { file, source: None }),
        Err(source) => Err(Error::NotAnObject { file, source: Some(source) }),
    }
}
