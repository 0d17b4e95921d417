"""Adds random weights to a copy of fixtures/models/tiny-vl, so that a real vLLM can serve it.

usage: weights.py MODEL_DIR
"""

import json
import pathlib
import sys

import torch
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

folder = pathlib.Path(sys.argv[1])
ids = {token["content"]: token["id"] for token in json.loads((folder / "tokenizer.json").read_text())["added_tokens"]}
torch.manual_seed(0)
hidden = 128
text = dict(
    vocab_size=4096, hidden_size=hidden, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6, tie_word_embeddings=True,
    bos_token_id=ids["<|endoftext|>"], eos_token_id=ids["<|im_end|>"], rope_theta=1e6,
    rope_scaling=dict(type="mrope", rope_type="default", mrope_section=[4, 6, 6]),
)
vision = dict(
    depth=2, hidden_size=64, intermediate_size=128, num_heads=2, out_hidden_size=hidden, patch_size=14,
    spatial_merge_size=2, temporal_patch_size=2, window_size=112, fullatt_block_indexes=[1], in_channels=3,
    tokens_per_second=2,
)
config = Qwen2_5_VLConfig(
    text_config=text, vision_config=vision, tie_word_embeddings=True,
    vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
    image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
)
generation = folder / "generation_config.json"
kept = generation.read_text()
Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
generation.write_text(kept)
