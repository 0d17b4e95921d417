//! Media configurations and sizes: whatever a model's files say, the answer is bounded.

#![no_main]

use libfuzzer_sys::fuzz_target;
use media_geometry::ImageSize;
use prompt::media_config::geometry;

const TYPES: [&str; 22] = [
    "qwen2_vl",
    "qwen2_5_vl",
    "qwen3_vl",
    "llava",
    "llava_next",
    "llava_onevision",
    "pixtral",
    "mistral3",
    "llama4",
    "gemma3",
    "gemma4",
    "idefics3",
    "smolvlm",
    "internvl",
    "internvl_chat",
    "glm4v",
    "phi3_v",
    "phi4_multimodal",
    "phi4mm",
    "kimi_k25",
    "minicpmv4_6",
    "",
];

fuzz_target!(|input: (u8, u32, u32, &str, &str)| {
    let (kind, width, height, config, preprocessor) = input;
    let model_type = TYPES[usize::from(kind) % TYPES.len()];
    let config = format!(r#"{{"model_type":"{model_type}",{config}}}"#);
    let whole = format!("{{{preprocessor}}}");
    for text in [config.as_str(), &format!(r#"{{"model_type":"{model_type}"}}"#)] {
        let Ok(Some(geometry)) = geometry(text.as_bytes(), Some(whole.as_bytes()), None) else { continue };
        for size in [ImageSize::new(width, height), ImageSize::new(width % 5000, height % 5000)] {
            if let Ok(expansion) = geometry.expand(&[size]).remove(0) {
                assert!(expansion.tokens() <= 1 << 21 && expansion.placeholder_tokens > 0);
                assert_eq!(expansion.range, 0..expansion.tokens());
            }
        }
    }
});
