//! From a model's type and values to its family's configuration.
//!
//! Every look-up is in the reference's order; the last value of each is the reference class's default.

use media_geometry::{
    Family, Gemma3, Gemma4, Glm4v, Idefics3, InternVl, KimiK25, Llama4, MiniCpmV, PanAndScan, Phi3v, Phi4Mm,
    QwenVl,
};

use super::Error;
use super::llava;
use super::values::{Section, Values};

/// Returns the family of a model type, configured, or `None` for a type without a family.
pub(super) fn family(values: &Values) -> Result<Option<Family>, Error> {
    Ok(Some(match values.model_type() {
        "qwen2_vl" | "qwen2_5_vl" | "qwen3_vl" | "qwen3_vl_moe" | "qwen3_5" | "qwen3_5_moe" => {
            Family::QwenVl(qwen_vl(values)?)
        }
        "llava" => llava::llava(values)?,
        "llava_next" => Family::AnyRes(llava::next(values)?),
        "llava_onevision" => Family::AnyRes(llava::onevision(values)?),
        "pixtral" => Family::Pixtral(llava::pixtral(values)?),
        "mistral3" => Family::Pixtral(llava::mistral3(values)?),
        "llama4" => Family::Llama4(llama4(values)?),
        "gemma3" => Family::Gemma3(gemma3(values)?),
        "gemma4" => Family::Gemma4(gemma4(values)?),
        "idefics3" | "smolvlm" => Family::Idefics3(idefics3(values)?),
        "internvl" => Family::InternVl(internvl(values)?),
        "internvl_chat" => Family::InternVl(internvl_chat(values)?),
        "glm4v" | "glm4v_moe" | "glm46v" => Family::Glm4v(glm4v(values)?),
        "phi3_v" => Family::Phi3v(Phi3v { crops_max: values.image()?.u32("num_crops", 1)? }),
        "phi4_multimodal" | "phi4mm" => Family::Phi4Mm(phi4mm(values)?),
        "minicpmv4_6" => Family::MiniCpmV(minicpmv(values)?),
        "kimi_k25" => Family::KimiK25(kimi_k25(values)?),
        _ => return Ok(None),
    }))
}

/// `Qwen2VLImageProcessor.__init__`: `min_pixels` and `max_pixels` hide `size`, which hides the class's default.
fn qwen_vl(values: &Values) -> Result<QwenVl, Error> {
    let image = values.image()?;
    let size = image.section("size")?;
    let given = image.get("size").is_some();
    let edge = |alias: &str, edge: &str, default: u64| -> Result<u64, Error> {
        // Early checkpoints spell the edges inside of `size` like the aliases.
        match (image.integer(alias)?, size.integer(edge)?, size.integer(alias)?) {
            (Some(value), _, _) | (None, Some(value), _) | (None, None, Some(value)) => Ok(value),
            (None, None, None) if given => {
                Err(image.error("size", "an object with shortest_edge and longest_edge"))
            }
            (None, None, None) => Ok(default),
        }
    };
    Ok(QwenVl {
        patch_size: image.u32("patch_size", 14)?,
        merge_size: image.u32("merge_size", 2)?,
        min_pixels: edge("min_pixels", "shortest_edge", 56 * 56)?,
        max_pixels: edge("max_pixels", "longest_edge", 28 * 28 * 1280)?,
    })
}

fn glm4v(values: &Values) -> Result<Glm4v, Error> {
    let image = values.image()?;
    let size = image.section("size")?;
    let edge = |edge: &str, default: u64| match size.integer(edge)? {
        Some(value) => Ok(value),
        None if image.get("size").is_some() => {
            Err(image.error("size", "an object with shortest_edge and longest_edge"))
        }
        None => Ok(default),
    };
    Ok(Glm4v {
        patch_size: image.u32("patch_size", 14)?,
        merge_size: image.u32("merge_size", 2)?,
        temporal_patch_size: image.u32("temporal_patch_size", 2)?,
        min_pixels: edge("shortest_edge", 112 * 112)?,
        max_pixels: edge("longest_edge", 28 * 28 * 15_000)?,
    })
}

/// Tiles are of the vision tower's size; the image processor has the same.
fn llama4(values: &Values) -> Result<Llama4, Error> {
    let image = values.image()?;
    let vision = values.config().section("vision_config")?;
    let tile = if vision.is_empty() { image.side("size", 336)? } else { vision.u32("image_size", 448)? };
    let patch = vision.u32("patch_size", 14)?.max(1);
    let shuffle = vision.number("pixel_shuffle_ratio")?.unwrap_or(0.5);
    let grid = f64::from(tile / patch);
    Ok(Llama4 {
        tile_size: tile,
        tiles_max: image.u32("max_patches", 16)?,
        tile_tokens: whole((grid * grid / (1.0 / (shuffle * shuffle)).round_ties_even()).floor()),
        resize_to_max_canvas: image.boolean("resize_to_max_canvas", false)?,
    })
}

/// The reference's processor ignores `do_pan_and_scan` in the file and listens to the engine's keyword arguments only;
/// published files leave it null. An explicit `true` is taken at its word here.
fn gemma3(values: &Values) -> Result<Gemma3, Error> {
    let image = values.image()?;
    let default = image.u32("image_seq_length", values.config().u32("mm_tokens_per_image", 256)?)?;
    let pan_and_scan = if image.boolean("do_pan_and_scan", false)? {
        Some(PanAndScan {
            crop_size_min: image.u32("pan_and_scan_min_crop_size", 256)?,
            crops_max: image.u32("pan_and_scan_max_num_crops", 4)?,
            ratio_min: image.number("pan_and_scan_min_ratio_to_activate")?.unwrap_or(1.2),
        })
    } else {
        None
    };
    Ok(Gemma3 { image_tokens: values.processor().u32("image_seq_length", default)?, pan_and_scan })
}

fn gemma4(values: &Values) -> Result<Gemma4, Error> {
    let image = values.image()?;
    let config = values.config();
    let vision = config.section("vision_config")?;
    let tokens_max = image.u32("max_soft_tokens", vision.u32("default_output_length", 280)?)?;
    if ![70, 140, 280, 560, 1120].contains(&tokens_max) {
        return Err(image.error("max_soft_tokens", "one of 70, 140, 280, 560, 1120"));
    }
    Ok(Gemma4 {
        patch_size: image.u32("patch_size", vision.u32("patch_size", 16)?)?,
        pooling_size: image.u32("pooling_kernel_size", vision.u32("pooling_kernel_size", 3)?)?,
        tokens_max,
        begin_id: config.u32("boi_token_id", 255_999)?,
        end_id: config.u32("eoi_token_id", 258_882)?,
    })
}

fn idefics3(values: &Values) -> Result<Idefics3, Error> {
    let image = values.image()?;
    let longest = |field: &str, default: u32| match image.get(field) {
        None => Ok(default),
        Some(_) => image
            .section(field)?
            .optional_u32("longest_edge")?
            .ok_or_else(|| image.error(field, "an object with longest_edge")),
    };
    Ok(Idefics3 {
        longest_edge: longest("size", 4 * 364)?,
        tile_size: longest("max_image_size", 364)?,
        tile_tokens: values.processor().u32("image_seq_len", image.u32("image_seq_len", 169)?)?,
        splits: image.boolean("do_image_splitting", true)?,
    })
}

/// `InternVLProcessor` always crops to patches, whatever the image processor's file says.
fn internvl(values: &Values) -> Result<InternVl, Error> {
    let image = values.image()?;
    Ok(InternVl {
        tile_size: image.side("size", 384)?,
        tiles_min: image.u32("min_patches", 1)?,
        tiles_max: image.u32("max_patches", 12)?,
        tile_tokens: values.processor().u32("image_seq_length", image.u32("image_seq_length", 256)?)?,
        thumbnail: true,
        text_target: false,
    })
}

/// The original checkpoints have no processor; the engine builds one from `config.json`.
fn internvl_chat(values: &Values) -> Result<InternVl, Error> {
    let config = values.config();
    let vision = config.section("vision_config")?;
    let tile_size = vision.u32("image_size", 448)?;
    let grid = f64::from(tile_size / vision.u32("patch_size", 14)?.max(1));
    let ratio = config.number("downsample_ratio")?.unwrap_or(0.5);
    let dynamic = config.boolean("dynamic_image_size", true)?;
    Ok(InternVl {
        tile_size,
        tiles_min: if dynamic { config.u32("min_dynamic_patch", 1)? } else { 1 },
        tiles_max: if dynamic { config.u32("max_dynamic_patch", 12)? } else { 1 },
        tile_tokens: whole((grid * grid * (ratio * ratio)).floor()),
        thumbnail: config.boolean("use_thumbnail", true)?,
        text_target: true,
    })
}

fn phi4mm(values: &Values) -> Result<Phi4Mm, Error> {
    let image = values.image()?;
    Ok(Phi4Mm {
        tile_size: image.side("size", 448)?,
        patch_size: image.u32("patch_size", 14)?,
        tiles_max: image.u32("dynamic_hd", 36)?,
    })
}

fn minicpmv(values: &Values) -> Result<MiniCpmV, Error> {
    let image = values.image()?;
    let slices_max = if image.boolean("slice_mode", true)? { image.u32("max_slice_nums", 9)? } else { 1 };
    Ok(MiniCpmV {
        scale_resolution: image.u32("scale_resolution", 448)?,
        patch_size: image.u32("patch_size", 14)?,
        slices_max,
        patches_per_token: if image.text("downsample_mode")? == Some("4x") { 4 } else { 16 },
    })
}

/// The published processor keeps its values in `media_proc_cfg`, transformers' own at top level.
fn kimi_k25(values: &Values) -> Result<KimiK25, Error> {
    let image = values.image()?;
    let own = image.section("media_proc_cfg")?;
    if own.is_empty() {
        let size = image.section("size")?;
        return Ok(KimiK25 {
            patch_size: image.u32("patch_size", 14)?,
            merge_size: image.u32("merge_size", 2)?,
            patches_max: image.u32("max_patches", 16_384)?,
            side_patches_max: size.u32("max_height", 512)?,
            fixed_tokens: None,
        });
    }
    Ok(KimiK25 {
        patch_size: own.u32("patch_size", 14)?,
        merge_size: own.first_u32("merge_kernel_size", 2)?,
        patches_max: own.u32("in_patch_limit", 16_384)?,
        side_patches_max: own.u32("patch_limit_on_one_side", 512)?,
        fixed_tokens: fixed(&own)?,
    })
}

fn fixed(own: &Section) -> Result<Option<u32>, Error> {
    own.optional_u32("fixed_output_tokens")
}

/// Converts a count that was computed as a float; what doesn't fit is refused by the family's check.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "float casts saturate")]
fn whole(count: f64) -> u32 {
    count as u32
}
