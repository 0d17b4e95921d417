"""Compares the router's prompts with a live engine's, token by token: 30 image sizes in 10 shapes of conversation, and text.

usage: layouts.py ENGINE_URL MODEL MODEL_DIR PROMPT_TOKENS TOOLS_TEMPLATE     (the layout of the table: docs/multimodal.md)
"""

import base64
import io
import json
import pathlib
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request

from PIL import Image

ENGINE, MODEL, MODEL_DIR, PROMPT_TOKENS, TEMPLATE = sys.argv[1:]
SIZES = [
    (1, 1), (1, 200), (200, 1), (2, 3), (13, 27), (28, 28), (29, 27), (32, 32), (33, 31), (55, 57),
    (56, 56), (64, 48), (70, 42), (98, 14), (100, 100), (112, 252), (127, 129), (160, 120), (180, 320), (224, 224),
    (240, 135), (280, 224), (299, 299), (320, 240), (333, 77), (336, 336), (400, 300), (448, 98), (500, 375), (512, 384),
]
TOOL = {"type": "function", "function": {
    "name": "crop", "description": "Cuts a part out. „Ünïcode“ <b>&</b>",
    "parameters": {"type": "object", "properties": {"box": {"type": "array", "items": {"type": "number"}}},
                   "required": ["box"]}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "crop", "arguments": '{"box": [1, 2.5, 3, 4]}'}}


def picture(width, height):
    """Encodes noise, so that no two sizes share a file; PNG and JPEG in turn."""
    chance = random.Random(width * 1000 + height)
    image = Image.frombytes("RGB", (width, height), chance.randbytes(width * height * 3))
    kind = ("png", "jpeg")[(width + height) % 2]
    file = io.BytesIO()
    image.save(file, kind)
    return {"type": "image_url",
            "image_url": {"url": f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"}}


def text(words):
    return {"type": "text", "text": words}


def user(*parts):
    return {"role": "user", "content": list(parts)}


def says(role, words, **more):
    return {"role": role, "content": words, **more}


def shapes(image, other):
    """The conversations about an image; `other` is one of another size."""
    look = says("user", "Look.")
    return {
        "image, text": [user(image, text("What is it?"))],
        "text, image": [user(text("What is this?"), image)],
        "text, image, text": [user(text("Here:"), image, text(" and what now?\n\n"))],
        "system": [says("system", "Be  terse.\n"), user(image, text("Describe."))],
        "turns": [user(text("A"), image), says("assistant", "A cat."), says("user", "Sure?"), says("assistant", "No. 🙂"),
                  user(text("Why?"))],
        "two images": [user(image, text("or"), other, text("?"))],
        "images in turns": [user(image), says("assistant", "One."), user(text("And"), other), says("assistant", ""), look],
        "same image twice": [user(image, image, text("Same?"))],
        "literal placeholder": [user(text("type <|image_pad|> or <|vision_start|>, then"), image, text("<|image_pad|>"))],
        "tools": [says("system", "Use tools."), user(image, text("Crop it.")),
                  says("assistant", None, tool_calls=[CALL]),
                  says("tool", "done: ünïcode", tool_call_id="call_1"), user(text("Again."))],
    }


def requests():
    """Lists (shape, size, path, body); a body's own template is for the engine alone."""
    for index, (width, height) in enumerate(SIZES):
        image, other = picture(width, height), picture(*SIZES[(index + 7) % len(SIZES)])
        for shape, messages in shapes(image, other).items():
            body = {"model": MODEL, "messages": messages, "max_tokens": 1, "return_token_ids": True, "temperature": 0}
            if shape == "tools":
                body |= {"tools": [TOOL], "tool_choice": "none"}
            yield shape, (width, height), "/v1/chat/completions", body
    for words in ["", "plain", "  spaces\n\n\tand 漢字 🙂", "a <|im_start|> b <|image_pad|> c", "x" * 3000]:
        body = {"model": MODEL, "prompt": words or "\n", "max_tokens": 1, "return_token_ids": True, "temperature": 0}
        yield "completion", None, "/v1/completions", body
        chat = {"model": MODEL, "messages": [says("user", words)], "max_tokens": 1, "return_token_ids": True}
        yield "text alone", None, "/v1/chat/completions", chat
    tokens = {"model": MODEL, "prompt": [1, 2, 3, 4, 5], "max_tokens": 1, "return_token_ids": True}
    yield "completion", None, "/v1/completions", tokens


def asked(path, body):
    """Asks the engine; its ids and what it counted, or what it refused."""
    call = urllib.request.Request(ENGINE + path, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(call, timeout=120) as answer:
            answer = json.load(answer)
    except urllib.error.HTTPError as error:
        return None, f"{error.code} {error.read()[:200]!r}"
    ids = answer.get("prompt_token_ids") or answer["choices"][0].get("prompt_token_ids")
    return ids, answer["usage"]


def routers(bodies, *template):
    """Asks the router's code."""
    lines = "".join(json.dumps(body) + "\n" for body in bodies)
    command = [PROMPT_TOKENS, MODEL_DIR, *template]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main():
    began = time.monotonic()
    cases = list(requests())
    plain = [case for case in cases if case[0] != "tools"]
    tools = [case for case in cases if case[0] == "tools"]
    predicted = routers([case[3] for case in plain]) + routers([case[3] for case in tools], TEMPLATE)
    source = pathlib.Path(TEMPLATE).read_text()
    table, wrong = {}, []
    for (shape, size, path, body), ours in zip(plain + tools, predicted, strict=True):
        ids, usage = asked(path, body | {"chat_template": source} if shape == "tools" else body)
        row = table.setdefault(shape, {"requests": 0, "equal": 0, "tokens": 0, "image tokens": 0})
        row["requests"] += 1
        if ids is not None and ours.get("tokens") == ids and ours["fallback"] is None:
            row["equal"] += 1
            row["tokens"] += len(ids)
            row["image tokens"] += ours["media"]
            continue
        mine = ours.get("tokens", [])
        at = next((i for i, pair in enumerate(zip(mine, ids or [])) if pair[0] != pair[1]), None)
        wrong.append(f"{shape} {size}: {ours.get('error') or ours.get('fallback')}, {len(mine)} tokens; engine "
                     f"{usage if ids is None else len(ids)}; first difference at {at}")
    print(f"{MODEL}: {len(SIZES)} image sizes, {sum(row['requests'] for row in table.values())} requests, "
          f"{time.monotonic() - began:.0f} s\n")
    print("| shape | requests | equal | prompt tokens | image tokens |\n|---|---|---|---|---|")
    for shape, row in table.items():
        print(f"| {shape} | {row['requests']} | {row['equal']} | {row['tokens']} | {row['image tokens']} |")
    print("\n".join(["", *wrong]))
    sys.exit(1 if wrong else 0)


main()
