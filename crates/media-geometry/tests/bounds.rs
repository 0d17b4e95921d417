//! Any configuration and any size: no panic, no overflow, a bounded answer.

use media_geometry::{
    AnyRes, Expansion, Family, Gemma3, Gemma4, Geometry, Glm4v, Idefics3, ImageSize, InternVl, KimiK25,
    Llama4, Llava, MiniCpmV, PanAndScan, Phi3v, Phi4Mm, Piece, Pixtral, QwenVl, Refused, VisionTower,
};
use proptest::prelude::*;

/// Numbers as configurations have them, and as they never should.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => prop::sample::select(vec![1_u32, 2, 3, 4, 9, 12, 14, 16, 28, 36, 64, 144, 224, 336, 364, 384, 448, 896]),
        2 => prop::sample::select(vec![1024_u32, 1540, 2048, 4096, 16_384, 65_535, 65_536]),
        1 => any::<u32>(),
    ]
}

fn area() -> impl Strategy<Value = u64> {
    prop_oneof![(1_u64..1 << 26), any::<u64>()]
}

fn tower() -> impl Strategy<Value = VisionTower> {
    (number(), number(), any::<bool>(), any::<bool>()).prop_map(
        |(image_size, patch_size, class_feature, drops_first)| VisionTower {
            image_size,
            patch_size,
            class_feature,
            drops_first,
        },
    )
}

fn resizing() -> impl Strategy<Value = Family> {
    prop_oneof![
        (number(), number(), area(), area()).prop_map(|(patch_size, merge_size, min_pixels, max_pixels)| {
            Family::QwenVl(QwenVl { patch_size, merge_size, min_pixels, max_pixels })
        }),
        (number(), number(), number(), area(), area()).prop_map(
            |(patch_size, merge_size, frames, min, max)| {
                Family::Glm4v(Glm4v {
                    patch_size,
                    merge_size,
                    temporal_patch_size: frames,
                    min_pixels: min,
                    max_pixels: max,
                })
            }
        ),
        (number(), number(), number()).prop_map(|(longest_edge, patch_size, merge_size)| {
            let (break_token, end_token) = ("[IMG_BREAK]".into(), "[IMG_END]".into());
            Family::Pixtral(Pixtral { longest_edge, patch_size, merge_size, break_token, end_token })
        }),
        (number(), number(), number()).prop_map(|(patch_size, pooling_size, tokens_max)| {
            Family::Gemma4(Gemma4 { patch_size, pooling_size, tokens_max, begin_id: 1, end_id: 2 })
        }),
        (number(), number(), number(), number(), prop::option::of(number())).prop_map(
            |(patch_size, merge_size, patches_max, side_patches_max, fixed_tokens)| {
                Family::KimiK25(KimiK25 {
                    patch_size,
                    merge_size,
                    patches_max,
                    side_patches_max,
                    fixed_tokens,
                })
            }
        ),
    ]
}

fn tiling() -> impl Strategy<Value = Family> {
    prop_oneof![
        tower().prop_map(|tower| Family::Llava(Llava { tower })),
        (tower(), prop::collection::vec((number(), number()), 0..9), prop::option::of(number()))
            .prop_map(|(tower, pinpoints, tiles_max)| Family::AnyRes(AnyRes { tower, pinpoints, tiles_max })),
        (number(), number(), number(), any::<bool>()).prop_map(|(tile_size, tiles_max, tile_tokens, max)| {
            Family::Llama4(Llama4 { tile_size, tiles_max, tile_tokens, resize_to_max_canvas: max })
        }),
        (number(), number(), number(), any::<bool>()).prop_map(
            |(longest_edge, tile_size, tile_tokens, splits)| {
                Family::Idefics3(Idefics3 { longest_edge, tile_size, tile_tokens, splits })
            }
        ),
        (number(), number(), number(), number(), any::<bool>()).prop_map(
            |(tile_size, min, max, tokens, thumbnail)| {
                Family::InternVl(InternVl {
                    tile_size,
                    tiles_min: min,
                    tiles_max: max,
                    tile_tokens: tokens,
                    thumbnail,
                    text_target: false,
                })
            }
        ),
        (number(), number(), number(), prop::option::of(any::<f64>())).prop_map(
            |(tokens, least, most, ratio)| {
                let pan_and_scan =
                    ratio.map(|ratio_min| PanAndScan { crop_size_min: least, crops_max: most, ratio_min });
                Family::Gemma3(Gemma3 { image_tokens: tokens, pan_and_scan })
            }
        ),
        (number(), number(), number(), number()).prop_map(
            |(scale_resolution, patch_size, slices_max, patches_per_token)| {
                Family::MiniCpmV(MiniCpmV { scale_resolution, patch_size, slices_max, patches_per_token })
            }
        ),
        number().prop_map(|crops_max| Family::Phi3v(Phi3v { crops_max })),
        (number(), number(), number()).prop_map(|(tile_size, patch_size, tiles_max)| {
            Family::Phi4Mm(Phi4Mm { tile_size, patch_size, tiles_max })
        }),
    ]
}

fn side() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 1_u32..5000, 1 => any::<u32>(), 1 => Just(0), 1 => Just(1), 1 => Just(u32::MAX)]
}

fn check(expansion: &Expansion) -> Result<(), TestCaseError> {
    let tokens = expansion.tokens();
    prop_assert!(tokens > 0 && tokens <= 1 << 21, "{tokens} tokens");
    prop_assert_eq!(&expansion.range, &(0..tokens));
    let placeholders: u32 = expansion
        .pieces
        .iter()
        .map(|piece| if matches!(piece, Piece::Placeholder { .. }) { piece.tokens() } else { 0 })
        .sum();
    prop_assert_eq!(expansion.placeholder_tokens, placeholders);
    prop_assert!(placeholders > 0, "{} placeholders", placeholders);
    let empty = expansion.pieces.iter().any(|piece| piece.tokens() == 0);
    prop_assert!(!empty, "a piece of nothing");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn any_size_under_any_configuration_is_bounded(
        family in prop_oneof![resizing(), tiling()],
        sizes in prop::collection::vec((side(), side()), 1..4),
        pixels_max in prop_oneof![Just(None), any::<u64>().prop_map(Some)],
    ) {
        let Ok(geometry) = Geometry::new(family) else { return Ok(()) };
        let geometry = match pixels_max {
            Some(most) => geometry.with_pixels_max(most),
            None => geometry,
        };
        let sizes: Vec<_> = sizes.into_iter().map(|(width, height)| ImageSize::new(width, height)).collect();
        let together = geometry.expand(&sizes);
        prop_assert_eq!(together.len(), sizes.len());
        for (size, expansion) in sizes.iter().zip(&together) {
            if size.width == 0 || size.height == 0 {
                prop_assert_eq!(expansion, &Err(Refused::Empty(*size)));
            }
            if let Ok(expansion) = expansion {
                check(expansion)?;
            }
            // As in vLLM, whose processor cache needs it, nothing depends on the other images but MiniCPM-V's numbers.
            if !matches!(geometry.family(), Family::MiniCpmV(_)) {
                prop_assert_eq!(&geometry.expand(&[*size])[..], std::slice::from_ref(expansion));
            }
        }
    }
}

#[test]
fn images_beyond_the_engines_limit_are_refused() {
    let family =
        Family::QwenVl(QwenVl { patch_size: 14, merge_size: 2, min_pixels: 3136, max_pixels: 12_845_056 });
    let geometry = Geometry::new(family).unwrap();
    let limit = media_geometry::PIXELS_MAX;
    let huge = ImageSize::new(30_000, 30_000);
    assert_eq!(geometry.expand(&[huge]), [Err(Refused::TooManyPixels { size: huge, limit })]);
    let raised = geometry.with_pixels_max(u64::MAX).expand(&[huge]);
    assert_eq!(raised[0].as_ref().unwrap().tokens(), 16_384);
}
