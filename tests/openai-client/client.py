"""The official OpenAI client against `sightline up`: routing by KV overlap, images included.

Starts the binary (unless --frontend names running ones), sends the chats below and checks what the client sees and what
the routing headers say. Exits 1 at the first difference; prints one line a check and a closing count.
"""

import argparse
import base64
import http.server
import json
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request
import zlib

import openai

SYSTEM = (
    "You look at pictures for a museum. Describe what is shown, who may have made it, when, and with which "
    "technique; name the colours, the light and the material. Say plainly what cannot be known from a picture. "
    "Answer in short sentences, and never guess the name of a person who is shown in a photograph or a painting."
)
DEADLINE_S = 30


def png(width, height, seed):
    """Makes a small valid RGB image whose bytes depend on the seed."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    row = b"\0" + bytes((seed * 37 + i * 3) % 256 for i in range(3 * width))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")


class Pictures(http.server.BaseHTTPRequestHandler):
    """Serves /WIDTHxHEIGHT-SEED.png."""

    def do_GET(self):
        found = re.fullmatch(r"/(\d+)x(\d+)-(\d+)\.png", self.path)
        data = png(*map(int, found.groups())) if found else b"not found"
        self.send_response(200 if found else 404)
        self.send_header("content-type", "image/png" if found else "text/plain")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def data_uri(image):
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(image).decode()}}


def by_url(url):
    return {"type": "image_url", "image_url": {"url": url}}


def conversation(second_seed, url):
    """A system prompt, then text and images in one turn: two by data URI, the third by URL."""
    parts = [
        {"type": "text", "text": "Compare these three."},
        data_uri(png(280, 224, 1)),
        {"type": "text", "text": "The second:"},
        data_uri(png(308, 196, second_seed)),
        {"type": "text", "text": "And the third:"},
        by_url(url),
    ]
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": parts}]


class Checks:
    def __init__(self):
        self.passed = 0

    def that(self, holds, what):
        if not holds:
            print(f"FAILED  {what}")
            print(f"{self.passed} passed, 1 failed")
            sys.exit(1)
        self.passed += 1
        print(f"ok      {what}")


class Router:
    """One frontend, through the official client."""

    def __init__(self, base, model):
        self.base, self.model = base, model
        self.client = openai.OpenAI(base_url=f"{base}/v1", api_key="unused", max_retries=0, timeout=DEADLINE_S)

    def chat(self, messages, max_tokens=4, **more):
        raw = self.client.chat.completions.with_raw_response.create(
            model=self.model, messages=messages, max_tokens=max_tokens, temperature=0, **more
        )
        answer = raw.parse()
        cached = answer.usage.prompt_tokens_details.cached_tokens or 0
        return answer, raw.headers, cached

    def explain(self, messages):
        body = json.dumps({"model": self.model, "messages": messages}).encode()
        request = urllib.request.Request(f"{self.base}/v1/explain", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
            return json.load(response)

    def wait_for_credit(self, messages, at_least=1):
        """Waits until the index knows what an answered request left in an engine's cache."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            predicted = self.explain(messages)["predicted"]["cached_tokens"]
            if predicted is not None and predicted >= at_least:
                return predicted
            time.sleep(0.02)
        raise SystemExit("the index did not learn of the request's blocks in time")


def start(binary, port):
    command = [binary, "up", "--port", str(port), "--media-allow-net", "127.0.0.0/8"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    threading.Thread(target=lambda: lines.extend(process.stdout), daemon=True).start()
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port + 1}/health/ready", timeout=1):
                return process, lines
        except OSError:
            time.sleep(0.05)
    process.kill()
    print("".join(lines))
    raise SystemExit("`sightline up` did not become ready")


def run(first, second, pictures, block_size):
    checks = Checks()

    # (a) text, streamed and not
    text = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "What is a fresco?"}]
    answer, headers, _ = first.chat(text)
    checks.that(answer.choices[0].message.content, "(a) text chat: an answer")
    checks.that(headers["x-sightline-worker"], "(a) text chat: a worker is named")
    predicted = int(headers["x-sightline-prompt-tokens"])
    checks.that(predicted == answer.usage.prompt_tokens, f"(a) predicted prompt tokens {predicted} = actual")
    checks.that(predicted // block_size >= 3, "(a) the system prompt spans at least 3 blocks")
    stream = first.client.chat.completions.create(
        model=first.model, messages=text, max_tokens=8, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    checks.that(sum(1 for c in chunks if c.choices and c.choices[0].delta.content) > 1, "(a) streamed: several chunks")
    checks.that(chunks[-1].usage.prompt_tokens == predicted, "(a) streamed: usage in the last chunk")

    # (b) three images
    messages = conversation(2, f"{pictures}/196x280-3.png")
    answer, headers, _ = first.chat(messages)
    worker = headers["x-sightline-worker"]
    predicted = int(headers["x-sightline-prompt-tokens"])
    checks.that(predicted == answer.usage.prompt_tokens, f"(b) three images: prompt tokens {predicted} = actual")
    first.wait_for_credit(messages, predicted - 2 * block_size)

    # (c) the same again
    answer, headers, cached = first.chat(messages)
    promised = int(headers["x-sightline-cached-tokens"])
    checks.that(headers["x-sightline-worker"] == worker, f"(c) again: same worker {worker}")
    checks.that(headers["x-sightline-reason"] == "kv", "(c) again: reason kv")
    checks.that(promised > 0 and promised == cached, f"(c) again: predicted cached tokens {promised} = actual {cached}")

    # (d) another image of the second's size
    other = conversation(9, f"{pictures}/196x280-3.png")
    explained = first.explain(messages)
    before = explained["media"][0]["tokens"]
    answer, headers, cached = first.chat(other, extra_headers={"x-sightline-worker": worker})
    promised = int(headers["x-sightline-cached-tokens"])
    full = int(predicted)
    checks.that(promised == cached, f"(d) other second image: predicted {promised} = actual {cached}")
    start_of_second = second_image_start(first, conversation(2, f"{pictures}/196x280-3.png"))
    limit = start_of_second // block_size * block_size
    checks.that(cached == limit, f"(d) cached tokens end at the last block before it: {cached} = {limit}")
    checks.that(before <= cached < full, "(d) the first image is credited, the second not")

    # (e) the second frontend
    second.wait_for_credit(messages, predicted - 2 * block_size)
    answer, headers, cached = second.chat(messages)
    promised = int(headers["x-sightline-cached-tokens"])
    checks.that(headers["x-sightline-worker"] == worker, "(e) second frontend: same worker")
    checks.that(promised > 0 and promised == cached, f"(e) second frontend: predicted {promised} = actual {cached}")
    print(f"{checks.passed} passed, 0 failed")


def second_image_start(router, messages):
    """Finds the token index of the second image in the engine's own prompt."""
    answer, _, _ = router.chat(messages, extra_body={"return_token_ids": True})
    ids = answer.model_extra["prompt_token_ids"]
    pad = max(set(ids), key=ids.count)
    starts = [i for i, token in enumerate(ids) if token == pad and (i == 0 or ids[i - 1] != pad)]
    return starts[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", help="the sightline binary to start")
    parser.add_argument("--port", type=int, default=18000, help="first port for the frontends it starts")
    parser.add_argument("--frontend", action="append", help="URL of a running frontend (give two); starts nothing")
    parser.add_argument("--model", default="tiny-vl")
    parser.add_argument("--block-size", type=int, default=16)
    given = parser.parse_args()

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    pictures = f"http://127.0.0.1:{server.server_port}"

    if given.frontend:
        routers = [Router(base, given.model) for base in given.frontend]
        run(routers[0], routers[-1], pictures, given.block_size)
        return
    process, lines = start(given.binary, given.port)
    try:
        routers = [Router(f"http://127.0.0.1:{given.port + i}", given.model) for i in (0, 1)]
        run(*routers, pictures, given.block_size)
    finally:
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        process.wait(timeout=10)
        took = time.monotonic() - began
        loud = [line for line in lines if " WARN " in line or " ERROR " in line]
        if loud or took > 2:
            print("".join(loud), f"stopping took {took:.1f} s")
            sys.exit(1)


if __name__ == "__main__":
    main()
