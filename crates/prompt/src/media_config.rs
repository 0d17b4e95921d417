//! A model's media geometry from its configuration files.

mod families;
mod llava;
mod report;
mod values;

use media_geometry::{Geometry, Invalid};

pub use report::{SizeError, SizeReport, config_of_type, parse_size, report, report_each};
pub use values::MediaFiles;

use values::Values;

/// Why no geometry could be read from a model's configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file is not JSON, or not an object.
    #[error("{file} is not a JSON object")]
    NotAnObject {
        /// The file's usual name.
        file: &'static str,
        /// What the parser said.
        source: Option<serde_json::Error>,
    },
    /// The family's reference can't be loaded without this file.
    #[error("{file} is needed for model type {model_type} and is missing")]
    Missing {
        /// The file's usual name.
        file: &'static str,
        /// The model's type.
        model_type: String,
    },
    /// A value has a type or form that the reference refuses.
    #[error("{field} in {file} is not {expected}")]
    Value {
        /// The file's usual name.
        file: &'static str,
        /// The value's path.
        field: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A value is out of range.
    #[error("media configuration makes no sense")]
    Invalid(#[from] Invalid),
}

/// Reads a model's media geometry from its files alone; see [`geometry_of`].
///
/// # Errors
/// When a file is malformed or a value is one that the reference would refuse: such a model serves no images.
pub fn geometry(
    config: &[u8],
    preprocessor: Option<&[u8]>,
    processor: Option<&[u8]>,
) -> Result<Option<Geometry>, Error> {
    geometry_of(&MediaFiles { config, preprocessor, processor, kwargs: None })
}

/// Reads a model's media geometry.
///
/// The family is chosen by exact `model_type`; a type without a family is `None`. Values are looked up as the reference
/// does: the engine's keyword arguments hide the processor's nested `image_processor`, which hides the preprocessor's
/// file, and what is absent takes the reference class's default.
///
/// # Errors
/// When a file is malformed or a value is one that the reference would refuse: such a model serves no images.
pub fn geometry_of(files: &MediaFiles<'_>) -> Result<Option<Geometry>, Error> {
    let values = Values::parse(files)?;
    match families::family(&values)? {
        Some(family) => Ok(Some(Geometry::new(family)?)),
        None => Ok(None),
    }
}
