//! The LLaVA family: what is read from the vision tower's configuration.

use std::borrow::Cow;

use media_geometry::{AnyRes, Family, Llava, Pixtral, VisionTower};
use serde_json::Value;

use super::Error;
use super::values::{Section, Values};

/// LLaVA-1.5, or Pixtral in LLaVA's clothes.
pub(super) fn llava(values: &Values) -> Result<Family, Error> {
    let vision = values.config().section("vision_config")?;
    if vision.text("model_type")? == Some("pixtral") {
        return Ok(Family::Pixtral(pixtral(values)?));
    }
    Ok(Family::Llava(Llava { tower: tower(values, 336, "default")? }))
}

pub(super) fn next(values: &Values) -> Result<AnyRes, Error> {
    let default = vec![(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)];
    Ok(AnyRes {
        tower: tower(values, 336, "default")?,
        pinpoints: pinpoints(values)?.unwrap_or(default),
        tiles_max: None,
    })
}

/// vLLM pools at nine tiles, whatever `vision_aspect_ratio` says.
pub(super) fn onevision(values: &Values) -> Result<AnyRes, Error> {
    let default = || (1..=6).flat_map(|rows| (1..=6).map(move |cols| (384 * rows, 384 * cols))).collect();
    Ok(AnyRes {
        tower: tower(values, 384, "full")?,
        pinpoints: pinpoints(values)?.unwrap_or_else(default),
        tiles_max: Some(9),
    })
}

pub(super) fn pixtral(values: &Values) -> Result<Pixtral, Error> {
    let image = values.image()?;
    let vision = values.config().section("vision_config")?;
    let longest = image.section("size")?.u32("longest_edge", 1024)?;
    Ok(Pixtral {
        longest_edge: vision.u32("image_size", longest)?,
        patch_size: vision.u32("patch_size", image.side("patch_size", 16)?)?,
        merge_size: values.config().u32("spatial_merge_size", 1)?,
        break_token: token(values, "image_break_token", "[IMG_BREAK]")?,
        end_token: token(values, "image_end_token", "[IMG_END]")?,
    })
}

pub(super) fn mistral3(values: &Values) -> Result<Pixtral, Error> {
    let image = values.image()?;
    let config = values.config();
    let vision = config.section("vision_config")?;
    let merge = values.processor().u32("spatial_merge_size", image.u32("spatial_merge_size", 2)?)?;
    let patch = if vision.is_empty() { image.side("patch_size", 14)? } else { 16 };
    Ok(Pixtral {
        longest_edge: image.section("size")?.u32("longest_edge", 1024)?,
        patch_size: vision.u32("patch_size", patch)?,
        merge_size: config.u32("spatial_merge_size", merge)?,
        break_token: token(values, "image_break_token", "[IMG_BREAK]")?,
        end_token: token(values, "image_end_token", "[IMG_END]")?,
    })
}

fn token(values: &Values, field: &str, default: &'static str) -> Result<Cow<'static, str>, Error> {
    let configured = values.processor().text(field)?.map(|text| Cow::Owned(text.to_owned()));
    Ok(configured.unwrap_or(Cow::Borrowed(default)))
}

/// Reads the vision tower. Without a `vision_config` it is the default of the model's own configuration class, at the
/// size that the image processor crops or resizes to.
fn tower(values: &Values, default_size: u32, default_select: &str) -> Result<VisionTower, Error> {
    let config = values.config();
    let vision = config.section("vision_config")?;
    let siglip_by_default = default_size == 384;
    let class_feature = match vision.text("model_type")? {
        None => !siglip_by_default,
        Some("clip_vision_model") => true,
        Some("siglip_vision_model") => false,
        Some(_) => return Err(vision.error("vision_config.model_type", "a vision tower with known features")),
    };
    let (size, patch) = match (vision.is_empty(), class_feature) {
        (true, _) => {
            (processed_size(values.image()?, default_size)?, values.processor().u32("patch_size", 14)?)
        }
        (false, true) => (224, 32),
        (false, false) => (224, 16),
    };
    let drops_first = match config.text("vision_feature_select_strategy")?.unwrap_or(default_select) {
        "default" => true,
        "full" => false,
        _ => return Err(config.error("vision_feature_select_strategy", "default or full")),
    };
    // Loading the image processor fails without its file, whatever the tower says.
    values.image()?;
    Ok(VisionTower {
        image_size: vision.u32("image_size", size)?,
        patch_size: vision.u32("patch_size", patch)?,
        class_feature,
        drops_first,
    })
}

fn processed_size(image: &Section, default: u32) -> Result<u32, Error> {
    let shortest = image.section("size")?.u32("shortest_edge", default)?;
    let side = image.section("size")?.u32("height", shortest)?;
    image.section("crop_size")?.u32("height", side)
}

/// Reads the pinpoints of the model, else of the image processor, as (height, width).
fn pinpoints(values: &Values) -> Result<Option<Vec<(u32, u32)>>, Error> {
    let config = values.config();
    let image = values.image()?;
    let section = if config.get("image_grid_pinpoints").is_some() { &config } else { image };
    let Some(list) = section.get("image_grid_pinpoints") else {
        return Ok(None);
    };
    let pair = |item: &Value| {
        let side = |index| item.get(index).and_then(Value::as_u64).and_then(|side| u32::try_from(side).ok());
        Some((side(0)?, side(1)?))
    };
    let read = list.as_array().and_then(|items| items.iter().map(pair).collect::<Option<Vec<_>>>());
    read.map(Some).ok_or_else(|| section.error("image_grid_pinpoints", "a list of [height, width]"))
}
