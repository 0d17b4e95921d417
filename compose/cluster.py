"""A running cluster as its clients and operators see it: what smoke.py, dashboard.py and chaos.py share."""

import base64
import http.client
import json
import os
import struct
import sys
import time
import urllib.error
import urllib.request
import zlib

WORKERS = 4
DEADLINE_S = 120
ASK_S = 20


def frontends():
    return [f"http://127.0.0.1:{os.environ[f'FRONTEND{n}_PORT']}" for n in (0, 1)]


def admins():
    return [f"http://127.0.0.1:{os.environ[f'FRONTEND{n}_ADMIN_PORT']}" for n in (0, 1)]


def send(url, body=None, timeout=ASK_S, **headers):
    """Returns the answer's JSON and its headers."""
    data = json.dumps(body).encode() if body is not None else None
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, data, {"content-type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        return json.loads(answer.read() or b"null"), answer.headers


def ask(url, body=None, timeout=ASK_S, **headers):
    return send(url, body, timeout, **headers)[0]


def explained(n, body):
    """Sends a body through a frontend, and returns the answer's usage and what operators see of its routing."""
    answer, headers = send(f"{frontends()[n]}/v1/chat/completions", body)
    return answer["usage"], ask(f"{admins()[n]}/v1/explain/{headers['x-request-id']}")


def until(what, condition, within=DEADLINE_S):
    """Asks until the answer is true, and returns it; ends the program where it never is."""
    end, why = time.monotonic() + within, ""
    while True:
        try:
            found = condition()
        except (OSError, urllib.error.URLError, http.client.HTTPException, ValueError) as error:
            found, why = None, f" ({error})"
        if found:
            return found
        if time.monotonic() > end:
            sys.exit(f"compose: not within {within} s: {what}{why}")
        time.sleep(0.1)


def png(width, height, seed):
    row = b"\0" + bytes((seed * 37 + x) % 256 for x in range(width * 3))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(row * height)) + chunk(b"IEND", b"")


def chat(seed, image=True, tokens=4, **fields):
    """A body whose prompt is like no other seed's from its first block on."""
    parts = [{"type": "text", "text": f"Picture number {seed}. What is to be seen here? " + "Look closely. " * 12}]
    if image:
        url = "data:image/png;base64," + base64.b64encode(png(112, 84, seed)).decode()
        parts.insert(0, {"type": "image_url", "image_url": {"url": url}})
    return {"model": "tiny-vl", "max_tokens": tokens, "messages": [{"role": "user", "content": parts}], **fields}


def whole(admin):
    """Whether a frontend sees every worker ready, and its index agrees with all their agents."""
    workers = ask(f"{admin}/admin/workers", timeout=2)["workers"]
    return [w["state"] for w in workers] == ["ready"] * WORKERS and all(w.get("agrees") for w in workers)


def idle(admin):
    return all(h["active_requests"] == 0 for h in ask(f"{admin}/admin/load", timeout=2)["holders"])


def settle(within=DEADLINE_S):
    """Waits until both frontends have the same index, which is the agents', and nothing is in flight."""

    def same():
        views = [ask(f"{admin}/admin/index") for admin in admins()]
        digests = [{h["worker"]: (h["digest"], h["seq"]) for h in view["holders"]} for view in views]
        caught_up = all(h["seq"] == h["agent_seq"] and h["agrees"] for view in views for h in view["holders"])
        return all(map(idle, admins())) and caught_up and digests[0] == digests[1] and len(digests[0]) == WORKERS

    # A beat after the last change: what is compared is what everybody has.
    time.sleep(1.2)
    until("the frontends have the same index and are idle", same, within)
