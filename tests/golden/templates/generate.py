#!/usr/bin/env python3
"""Renders chat requests with vLLM's own code, for `crates/prompt/tests/templates`.

usage: generate.py            (in a Python environment with vLLM 0.32; nothing is served)

Reads `sources/*.jinja` and `requests.json`, and the templates of the repository's models; writes `renders.json`:
for each template its content format, and for each request the rendered text or the error. Also renders each template
of `expressions.json` with one conversation, into `expressions_rendered.json`.
"""
import json
import os
import pathlib

os.environ.update(VLLM_LOGGING_LEVEL="CRITICAL", HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")

import transformers.utils.chat_template_utils as hf
from transformers import AutoTokenizer
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.renderers import chat_utils, merge_kwargs
from vllm.renderers.hf import _detect_content_format, safe_apply_chat_template

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
PLACEHOLDERS = {
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
    "video": "<|vision_start|><|video_pad|><|vision_end|>",
}


class Clock:
    """Stands for `datetime`: Saturday, 5 July 2025, 09:08:07."""

    @staticmethod
    def now():
        import datetime

        return datetime.datetime(2025, 7, 5, 9, 8, 7)


hf.datetime = Clock


class Config:
    """What the parser asks of a model's configuration."""

    enable_prompt_embeds = False
    hf_config = None
    allowed_local_media_path = ""
    allowed_media_domains = None

    def __init__(self, interleave):
        self.multimodal_config = type("M", (), dict(interleave_mm_strings=interleave, media_io_kwargs=None))()


def place(modality):
    def parse(self, *_args, **_kwargs):
        self._add_placeholder(modality, PLACEHOLDERS.get(modality))

    return parse


for name, modality in dict(image="image", video="video", audio="audio", input_audio="audio").items():
    setattr(chat_utils.MultiModalContentParser, f"parse_{name}", place(modality))
chat_utils.MultiModalItemTracker.resolve_items = lambda self: (None, None)


def render(template, tokenizer, body, options):
    request = ChatCompletionRequest.model_validate(json.loads(json.dumps(body)))
    hidden = request.tool_choice == "none" and options.get("hide_unused_tools", False)
    tools = None if request.tools is None or hidden else [tool.model_dump() for tool in request.tools]
    defaults = merge_kwargs(options.get("default_template_kwargs"), dict(tools=tools, tokenize=False))
    params = request.build_chat_params(template, "auto").with_defaults(defaults)
    config = Config(options.get("interleave", False))
    format = options.get("format") or _detect_content_format(template, default="string")
    conversation, _, _ = chat_utils.parse_chat_messages(request.messages, config, content_format=format)
    return safe_apply_chat_template(config, tokenizer, conversation, **params.get_apply_chat_template_kwargs())


def main():
    tokenizer = AutoTokenizer.from_pretrained(str(ROOT / "fixtures/models/tiny-vl"))
    sources = {path.stem: path.read_text() for path in sorted((HERE / "sources").glob("*.jinja"))}
    sources["tiny-vl"] = (ROOT / "fixtures/models/tiny-vl/chat_template.jinja").read_text()
    sources["qwen2_5_vl"] = (ROOT / "tests/fixtures/models/qwen2_5_vl/chat_template.jinja").read_text()
    sources["qwen3"] = json.loads((ROOT / "tests/fixtures/models/qwen/tokenizer_config.json").read_text())["chat_template"]
    requests = json.loads((HERE / "requests.json").read_text())
    renders = {}
    for name, source in sources.items():
        entry = {"format": _detect_content_format(source, default="string"), "renders": {}}
        for request in requests:
            if request.get("only", name) != name:
                continue
            try:
                entry["renders"][request["name"]] = {"text": render(source, tokenizer, request["body"], request.get("options", {}))}
            except Exception as error:  # noqa: BLE001
                entry["renders"][request["name"]] = {"error": str(error)[:200], "kind": type(error).__name__}
        renders[name] = entry
    expressions = {}
    body = next(request["body"] for request in requests if request["name"] == "turns")
    for expression in json.loads((HERE / "expressions.json").read_text()):
        try:
            expressions[expression] = {"text": render(expression, tokenizer, body, {"format": "string"})}
        except Exception as error:  # noqa: BLE001
            expressions[expression] = {"error": str(error)[:200]}
    (HERE / "expressions_rendered.json").write_text(json.dumps(expressions, ensure_ascii=False, indent=1) + "\n")
    (HERE / "renders.json").write_text(json.dumps(renders, ensure_ascii=False, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
