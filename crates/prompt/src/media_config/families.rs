//! From a model's type and values to its family's configuration.

use media_geometry::{Family, QwenVl};

use super::Error;
use super::values::Values;

/// Returns the family of a model type, configured, or `None` for a type without a family.
pub(super) fn family(values: &Values) -> Result<Option<Family>, Error> {
    Ok(Some(match values.model_type() {
        "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_5" | "qwen3_5_moe" => {
            Family::QwenVl(qwen_vl(values)?)
        }
        _ => return Ok(None),
    }))
}

/// `Qwen2VLImageProcessor.__init__`: `min_pixels` and `max_pixels` hide `size`, which hides the class's default.
fn qwen_vl(values: &Values) -> Result<QwenVl, Error> {
    let image = values.image()?;
    let size = image.section("size")?;
    let given = image.get("size").is_some();
    let edge = |alias: &str, edge: &str, default: u64| -> Result<u64, Error> {
        match (image.integer(alias)?, size.integer(edge)?) {
            (Some(value), _) | (None, Some(value)) => Ok(value),
            (None, None) if given => {
                Err(image.error("size", "an object with shortest_edge and longest_edge"))
            }
            (None, None) => Ok(default),
        }
    };
    Ok(QwenVl {
        patch_size: image.u32("patch_size", 14)?,
        merge_size: image.u32("merge_size", 2)?,
        min_pixels: edge("min_pixels", "shortest_edge", 56 * 56)?,
        max_pixels: edge("max_pixels", "longest_edge", 28 * 28 * 1280)?,
    })
}
