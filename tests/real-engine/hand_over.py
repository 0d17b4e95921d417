"""Hands images to a live engine in each way: what it costs the engine and the router, and whether predictions hold.

usage: hand_over.py ENGINE_PID BINARY MEDIA_DIR IMAGES

For each way a router of its own is started. Each of IMAGES new pictures is asked about twice, by URL: the first question
makes the engine load it, the second should find it cached. Exits 1 where a prediction differs from the engine's usage, an
image was fetched twice from its origin, or a way was not taken.
"""

import http.server
import io
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request

from PIL import Image, ImageFilter

ENGINE, BINARY, MEDIA_DIR, IMAGES = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
PORT, SIZE, DEADLINE_S = 18200, (1280, 960), 120
TICKS = os.sysconf("SC_CLK_TCK")
WAYS = {
    "passthrough": ["--media-mode", "passthrough"],
    "data": ["--media-hand-over", "data"],
    "url": ["--media-hand-over", "url"],
    "file": ["--media-hand-over", "file", "--media-dir", MEDIA_DIR],
    "data, decoded": ["--media-hand-over", "data", "--media-decode"],
    "file, decoded": ["--media-hand-over", "file", "--media-dir", MEDIA_DIR, "--media-decode"],
}


def picture(seed, kind):
    """Encodes blurred noise: as hard to compress as a photograph."""
    noise = Image.frombytes("RGB", SIZE, random.Random(seed).randbytes(SIZE[0] * SIZE[1] * 3))
    file = io.BytesIO()
    noise.filter(ImageFilter.GaussianBlur(2)).save(file, kind, **({"quality": 85} if kind == "jpeg" else {}))
    return file.getvalue()


class Origin(http.server.BaseHTTPRequestHandler):
    """Serves what is in `files`, with validators, and counts."""

    protocol_version = "HTTP/1.1"
    files, asked = {}, {}

    def do_GET(self):
        data = self.files[self.path]
        first, last = 0, len(data) - 1
        if wanted := self.headers.get("range"):
            first, last = (int(end) if end else last for end in wanted.removeprefix("bytes=").split("-"))
            last = min(last, len(data) - 1)
        else:
            self.asked[self.path] = self.asked.get(self.path, 0) + 1
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("content-range", f"bytes {first}-{last}/{len(data)}")
        self.send_header("content-type", f"image/{self.path.rsplit('.')[-1]}")
        self.send_header("cache-control", "max-age=3600")
        self.send_header("etag", f'"{self.path}"')
        self.send_header("content-length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(data[first : last + 1])

    def log_message(self, *_):
        pass


def cpu_s(pid):
    """Sums the CPU time of a process and what it started, in seconds."""
    children = pathlib.Path(f"/proc/{pid}/task").glob("*/children")
    below = sum(cpu_s(int(child)) for task in children for child in task.read_text().split())
    user, system = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return below + (int(user) + int(system)) / TICKS


def post(path, body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
        return json.load(response), response.headers


def question(url, words):
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": words}]
    return {"model": "tiny-vl", "max_tokens": 1, "temperature": 0, "messages": [{"role": "user", "content": parts}]}


def wait(holds, what):
    end = time.monotonic() + DEADLINE_S
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"{what} did not come in time")
        time.sleep(0.02)


def is_ready():
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health/ready", timeout=1).status == 200
    except OSError:
        return False


def ask(body, way):
    """Asks, and compares the prediction with what the engine counted; returns the cached tokens."""
    answer, headers = post("/v1/chat/completions", body)
    usage = answer["usage"]
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    actual = {"x-sightline-prompt-tokens": usage["prompt_tokens"], "x-sightline-cached-tokens": cached}
    for name, tokens in actual.items():
        # Of an image that the engine fetches, nothing is promised before its name is learned.
        if int(headers.get(name) or (tokens if way == "passthrough" else -1)) != tokens:
            raise SystemExit(f"{way}: {name} was {headers.get(name)}, the engine had {tokens}")
    return cached


def measure(way, urls, router):
    """Asks about each image, then again; returns seconds of CPU (engine and router, cold) and cached tokens."""
    before = cpu_s(ENGINE), cpu_s(router)
    for url in urls:
        ask(question(url, "What is it?"), way)
    engine, spent = cpu_s(ENGINE) - before[0], cpu_s(router) - before[1]
    found = 0
    for url in urls:
        again = question(url, "Who made it?")
        if way != "passthrough":
            wait(lambda: (post("/v1/explain", again)[0]["predicted"]["cached_tokens"] or 0) > 0, "credit")
        found += ask(again, way)
    return engine, spent, found


def check_way(way):
    """Checks that images were handed over as they should, and in no other way."""
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics") as metrics:
        lines = metrics.read().decode().splitlines()
    taken = [line for line in lines if line.startswith("sightline_media_handed_over_total{") and not line.endswith(" 0")]
    expected = f'way="{way.split(",")[0]}"'
    if way != "passthrough" and not (taken and all(expected in line for line in taken)):
        raise SystemExit(f"{way}: {taken}")


def run(way, kind, base, seeds):
    urls = []
    for seed in seeds:
        path = f"/{way.replace(', ', '-')}-{seed}.{kind}"
        Origin.files[path] = picture(seed, kind)
        urls.append(base + path)
    command = [
        BINARY, "up", "--port", str(PORT), "--agent-port", str(PORT + 90), "--frontends", "1",
        "--model-dir", "fixtures/models/tiny-vl", "--block-size", "32", "--media-allow-net", "127.0.0.0/8", "--engine",
        "http://127.0.0.1:28000,kv-events=tcp://127.0.0.1:25557,replay=tcp://127.0.0.1:25657", *WAYS[way],
    ]
    with open(pathlib.Path(MEDIA_DIR).parent / "sightline-hand-over.log", "w") as log:
        router = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        wait(is_ready, "the router")
        engine, spent, cached = measure(way, urls, router.pid)
        check_way(way)
    finally:
        router.send_signal(signal.SIGINT)
        router.wait(timeout=20)
    whole = sum(Origin.asked.get(url.removeprefix(base), 0) for url in urls)
    bytes_each = sum(len(Origin.files[url.removeprefix(base)]) for url in urls) // len(urls)
    row = (way, kind, bytes_each, f"{engine / len(urls) * 1e3:.0f}", f"{spent / len(urls) * 1e3:.1f}",
           f"{whole / len(urls):.1f}", cached // len(urls))
    print("| " + " | ".join(map(str, row)) + " |", flush=True)


def main():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Origin)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    print("| way | format | bytes | engine CPU, ms a new image | router CPU, ms | whole reads of the origin | cached tokens, asked again |")
    print("|---|---|---|---|---|---|---|")
    for number, kind in enumerate(("jpeg", "png")):
        for turn, way in enumerate(WAYS):
            start = (number * len(WAYS) + turn) * IMAGES
            run(way, kind, base, range(start, start + IMAGES))


if __name__ == "__main__":
    main()
