"""Checks a cluster from outside: smoke.py ready | requests | agreement | ends."""

import base64
import json
import os
import struct
import sys
import time
import urllib.error
import urllib.request
import zlib

FRONTENDS = [f"http://127.0.0.1:{os.environ[f'FRONTEND{n}_PORT']}" for n in (0, 1)]
ADMINS = [f"http://127.0.0.1:{os.environ[f'FRONTEND{n}_ADMIN_PORT']}" for n in (0, 1)]
INDEXER = f"http://127.0.0.1:{os.environ['INDEXER_PORT']}"
DEADLINE_S = 120
WORKERS = 4
PREFIXES = 40
# 128 + SIGTERM: etcd ends by the signal it was sent.
ENDS_WELL = {"etcd": {0, 143}, "nats": {0, 1, 143}}


def ask(url, body=None, **headers):
    data = json.dumps(body).encode() if body is not None else None
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read() or b"null")


def until(what, condition):
    end = time.monotonic() + DEADLINE_S
    while True:
        try:
            found = condition()
        except (OSError, urllib.error.URLError, ValueError) as error:
            found, what = None, f"{what} ({error})" if "(" not in what else what
        if found:
            return found
        if time.monotonic() > end:
            sys.exit(f"smoke: not within {DEADLINE_S} s: {what}")
        time.sleep(0.1)


def png(width, height, seed):
    row = b"\0" + bytes((seed * 37 + x) % 256 for x in range(width * 3))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")


def chat(seed, text="What is to be seen here?", image=True):
    parts = [{"type": "text", "text": f"Picture number {seed}. {text} " + "Look closely. " * 12}]
    if image:
        url = "data:image/png;base64," + base64.b64encode(png(112, 84, seed)).decode()
        parts.insert(0, {"type": "image_url", "image_url": {"url": url}})
    return {"model": "tiny-vl", "max_tokens": 4, "messages": [{"role": "user", "content": parts}]}


def ready():
    def states(admin):
        workers = ask(f"{admin}/admin/workers")["workers"]
        return [worker["state"] for worker in workers] == ["ready"] * WORKERS and all(w.get("agrees") for w in workers)

    for frontend, admin in zip(FRONTENDS, ADMINS):
        until(f"{frontend} is ready", lambda: ask(f"{frontend}/health/ready")["status"] == "ready")
        until(f"{admin} sees {WORKERS} ready workers", lambda: states(admin))
    until("the indexer is ready", lambda: ask(f"{INDEXER}/health/ready")["status"] == "ready")


def settle():
    def same():
        views = [ask(f"{admin}/admin/index") for admin in ADMINS]
        digests = [{h["worker"]: (h["digest"], h["seq"]) for h in view["holders"]} for view in views]
        idle = all(h["active_requests"] == 0 for admin in ADMINS for h in ask(f"{admin}/admin/load")["holders"])
        caught_up = all(h["seq"] == h["agent_seq"] and h["agrees"] for view in views for h in view["holders"])
        return idle and caught_up and digests[0] == digests[1] and len(digests[0]) == WORKERS

    # A beat after the last change: what is compared is what everybody has.
    time.sleep(1.2)
    until("the frontends have the same index and are idle", same)


def requests():
    body = chat(1)
    first = ask(f"{FRONTENDS[0]}/v1/chat/completions", body)
    settle()
    again = ask(f"{FRONTENDS[1]}/v1/chat/completions", body)
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    prompt = first["usage"]["prompt_tokens"]
    if not cached or cached < prompt - 32:
        sys.exit(f"smoke: the other frontend found {cached} of {prompt} tokens")
    print(f"one image through both frontends: {cached} of {prompt} tokens from the cache")


def agreement():
    # Warmed where they would not all go by themselves: an idle fleet sends what begins alike to one worker.
    warmed = {f"w{seed % WORKERS}": [] for seed in range(WORKERS)}
    for seed in range(100, 100 + PREFIXES):
        worker, body = f"w{seed % WORKERS}", chat(seed, image=seed % 3 > 0)
        ask(f"{FRONTENDS[seed // 2 % 2]}/v1/chat/completions", body, x_sightline_worker=worker)
        warmed[worker].append(body)
    settle()
    agreed, predicted = 0, 0
    for worker, bodies in warmed.items():
        for body in bodies:
            one, two = (ask(f"{frontend}/v1/explain", body) for frontend in FRONTENDS)
            agreed += one["worker"] == two["worker"] == worker
            predicted += one["predicted"]["cached_tokens"] == two["predicted"]["cached_tokens"] != 0
    print(f"the frontends agree on the worker for {agreed} of {PREFIXES} prefixes, cached tokens for {predicted}")
    if agreed != PREFIXES or predicted != PREFIXES:
        sys.exit("smoke: the frontends disagree")


def ends():
    bad = []
    for line in sys.stdin:
        service, code = line.split()
        if int(code) not in ENDS_WELL.get(service, {0}):
            bad.append(line.strip())
    if bad:
        sys.exit(f"smoke: ended badly: {bad}")
    print("everything ended in order")


if __name__ == "__main__":
    {"ready": ready, "requests": requests, "agreement": agreement, "ends": ends}[sys.argv[1]]()
