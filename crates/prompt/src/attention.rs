//! Whether a model's layers all keep the whole context.

use serde_json::Value;

/// Objects in which `config.json` describes the language model, beside its top level.
const TEXT_CONFIGS: [&str; 4] = ["text_config", "llm_config", "language_config", "thinker_config"];

/// Values whose presence says that some layers keep less than the whole context, or a state instead of it.
const MARKS: [&str; 16] = [
    "attention_chunk_size",
    "attn_layer_offset",
    "attn_layer_period",
    "full_attention_interval",
    "global_attn_every_n_layers",
    "hybrid_layer_ids",
    "hybrid_override_pattern",
    "linear_attn_config",
    "linear_num_key_heads",
    "mamba_d_state",
    "mamba_expand",
    "ssm_cfg",
    "ssm_state_size",
    "state_size",
    "sliding_window_pattern",
    "window_size_pattern",
];

/// Tells whether a model mixes full attention with sliding windows, chunks, linear attention or state spaces. Blocks of the
/// full layers are not all that a hit needs there.
pub(crate) fn is_hybrid(config: &Value) -> bool {
    let nested = TEXT_CONFIGS.iter().filter_map(|name| config.get(name));
    std::iter::once(config).chain(nested).any(mixes)
}

fn mixes(config: &Value) -> bool {
    let given = |name: &str| config.get(name).filter(|value| !value.is_null());
    let partial = |kind: &Value| kind.as_str().is_some_and(|kind| !is_full(kind));
    let listed =
        |name: &str| given(name).and_then(Value::as_array).is_some_and(|kinds| kinds.iter().any(partial));
    // Layers are told apart one by one: what else is configured is then unused.
    if given("layer_types").is_some() {
        return listed("layer_types");
    }
    listed("layers_block_type") || MARKS.iter().any(|mark| given(mark).is_some()) || slides(config)
}

fn is_full(kind: &str) -> bool {
    matches!(kind, "full_attention" | "attention" | "full" | "global")
}

/// Tells whether a window is narrower than the context, and not switched off.
fn slides(config: &Value) -> bool {
    let switched_off = config.get("use_sliding_window").and_then(Value::as_bool) == Some(false);
    let context = config.get("max_position_embeddings").and_then(Value::as_u64).unwrap_or(u64::MAX);
    let window = ["sliding_window", "sliding_window_size"];
    let window = window.iter().find_map(|name| config.get(name).and_then(Value::as_u64));
    !switched_off && window.is_some_and(|window| window < context)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(config: &str, expected: bool) {
        assert_eq!(is_hybrid(&serde_json::from_str(config).unwrap()), expected, "{config}");
    }

    #[test]
    fn layers_that_keep_less_are_seen() {
        check("{}", false);
        check(
            r#"{"text_config": {"layer_types": ["full_attention", "full_attention"], "sliding_window": 128}}"#,
            false,
        );
        check(r#"{"text_config": {"layer_types": ["sliding_attention", "full_attention"]}}"#, true);
        check(r#"{"text_config": {"layer_types": ["linear_attention", "full_attention"]}}"#, true);
        check(r#"{"sliding_window": 32768, "use_sliding_window": false}"#, false);
        check(r#"{"sliding_window": null}"#, false);
        check(r#"{"sliding_window": 4096, "max_position_embeddings": 32768}"#, true);
        check(r#"{"sliding_window": 131072, "max_position_embeddings": 131072}"#, false);
        check(r#"{"text_config": {"attention_chunk_size": 8192}}"#, true);
        check(r#"{"layers_block_type": ["mamba", "attention"]}"#, true);
        check(r#"{"layers_block_type": ["attention", "attention"]}"#, false);
        check(r#"{"mamba_d_state": 16, "attn_layer_period": 8}"#, true);
        check(r#"{"llm_config": {"hybrid_override_pattern": "M*M*"}}"#, true);
        check(r#"{"vision_config": {"sliding_window": 7, "layer_types": ["sliding_attention"]}}"#, false);
        check("[]", false);
    }
}
