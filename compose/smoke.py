"""Checks a cluster from outside: smoke.py ports | first SECONDS | ready | requests | agreement | traces | logs | ends."""

import os
import re
import socket
import sys
import time

from cluster import WORKERS, admins, ask, chat, explained, frontends, settle, until, whole

PREFIXES = 40
FIRST_S = 60
PORTS = ["FRONTEND0_PORT", "FRONTEND1_PORT", "FRONTEND0_ADMIN_PORT", "FRONTEND1_ADMIN_PORT", "INDEXER_PORT"]
PORTS += ["PROMETHEUS_PORT", "COLLECTOR_PORT"]
# 128 + SIGTERM: etcd ends by the signal it was sent. nats-server ends with 1 when it is asked to.
ENDS_WELL = {"etcd": {0, 143}, "nats": {0, 1, 143}}
# How each program's log marks what somebody should look at: Sightline, NATS, etcd (zap), Prometheus 2 and 3.
LOUD = re.compile(r' (WARN|ERROR) |\[(WRN|ERR|FTL)\]|"level":"(warn|error|fatal|panic)"|level=(warn|error|WARN|ERROR)')
# Name: the span above, and whose it is.
SPANS = {
    "request": ("client", "sightline-frontend"),
    "preprocess": ("request", "sightline-frontend"),
    "image": ("preprocess", "sightline-frontend"),
    "match": ("request", "sightline-frontend"),
    "place": ("request", "sightline-frontend"),
    "proxy": ("request", "sightline-frontend"),
    "generate": ("proxy", "sightline-engine-sim"),
    "queue": ("generate", "sightline-engine-sim"),
    "prefill": ("generate", "sightline-engine-sim"),
    "decode": ("generate", "sightline-engine-sim"),
}
# Lines that say nothing of the cluster's health, with the reason.
EXPECTED = {
    "etcd": [
        (r"simple token is not cryptographically signed", "no users, hence no tokens"),
        (r"apply request took too long|slow fdatasync|waiting for ReadIndex response took too long|"
         r"leader failed to send out heartbeat on time", "the machine's disk or processor is busy"),
    ],
    "prometheus": [(r"Received SIGTERM, exiting gracefully", "how it says that it was asked to end")],
}

# Lines of processes that end.
ENDING = [
    (r"traces are not exported, trying on",
     "nothing orders the collector's end after the others'"),
]


def ports():
    """Prints free ports as assignments. All are held until the last is chosen, so no two are the same."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    for name, listener in zip(PORTS, held):
        print(f"export {name}={listener.getsockname()[1]}")


def first(began):
    """The first multimodal request that is answered, from the moment that the cluster was asked for."""

    def routed():
        usage, why = explained(0, chat(1))
        # Before the model's files have come, requests are routed by load, and none of their blocks is known.
        predicted = why["predicted"] or {}
        return predicted.get("prompt_tokens") == usage["prompt_tokens"] and why["media"][0]["tokens"] and why

    why = until("a multimodal request is routed by its prompt", routed)
    took = time.time() - float(began)
    print(f"from nothing to a multimodal request that {why['worker']} answers, each token known: {took:.1f} of {FIRST_S} s")
    if took > FIRST_S:
        sys.exit("smoke: too late")


def ready():
    for frontend, admin in zip(frontends(), admins()):
        until(f"{frontend} is ready", lambda: ask(f"{frontend}/health/ready")["status"] == "ready")
        until(f"{admin} sees {WORKERS} ready workers", lambda: whole(admin))
    indexer = f"http://127.0.0.1:{os.environ['INDEXER_PORT']}"
    until("the indexer is ready", lambda: ask(f"{indexer}/health/ready")["status"] == "ready")


def requests():
    prompt = explained(0, chat(2))[0]["prompt_tokens"]
    settle()
    usage, why = explained(1, chat(2))
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    if cached < prompt - 32 or why["predicted"]["cached_tokens"] != cached or why["reason"] != "kv":
        sys.exit(f"smoke: the other frontend found {cached} of {prompt} tokens: {why}")
    print(f"one image through both frontends: {cached} of {prompt} tokens from the cache, as predicted")


def agreement():
    # Warmed where they would not all go by themselves: an idle fleet sends what begins alike to one worker.
    warmed = []
    for seed in range(100, 100 + PREFIXES):
        worker, body = f"w{seed % WORKERS}", chat(seed, image=seed % 3 > 0)
        ask(f"{frontends()[seed // 2 % 2]}/v1/chat/completions", body, x_sightline_worker=worker)
        warmed.append((worker, body))
    settle()
    agreed, predicted = 0, 0
    for worker, body in warmed:
        one, two = (ask(f"{frontend}/v1/explain", body) for frontend in frontends())
        agreed += one["worker"] == two["worker"] == worker
        predicted += one["predicted"]["cached_tokens"] == two["predicted"]["cached_tokens"] != 0
    print(f"the frontends agree on the worker for {agreed} of {PREFIXES} prefixes, cached tokens for {predicted}")
    if agreed != PREFIXES or predicted != PREFIXES:
        sys.exit("smoke: the frontends disagree")


def traces():
    """One request with a client's trace: its spans are one tree, from the client's span to the engine's steps."""
    trace, root = os.urandom(16).hex(), os.urandom(8).hex()
    collector = f"http://127.0.0.1:{os.environ['COLLECTOR_PORT']}"
    usage = ask(f"{frontends()[0]}/v1/chat/completions", chat(3), traceparent=f"00-{trace}-{root}-01")["usage"]

    def spans():
        found = ask(f"{collector}/spans?trace={trace}")
        return found if {span["name"] for span in found} >= set(SPANS) else None

    found = until(f"the collector has the spans {sorted(SPANS)}", spans)
    by_id = {span["span_id"]: span for span in found}
    for span in found:
        parent = by_id.get(span["parent_span_id"], {}).get("name", "client" if span["parent_span_id"] == root else None)
        above, service = SPANS.get(span["name"], (parent, span["service"]))
        if parent is None or (parent, span["service"]) != (above, service):
            sys.exit(f"smoke: span {span['name']} of {span['service']} is below {parent}, not below {above} of {service}")
    proxy = next(span for span in found if span["name"] == "proxy")["attributes"]
    if proxy["actual_prompt_tokens"] != usage["prompt_tokens"] or proxy["verdict"] != "match":
        sys.exit(f"smoke: the trace tells {proxy}, the answer {usage}")
    senders = sorted({span["service"] for span in ask(f"{collector}/spans")})
    print(f"one trace of {len(found)} spans from the client to the engine; spans came from {', '.join(senders)}")


def logs(ended=None):
    """Reads `SERVICE LINE` from standard input: of a cluster that runs, or of one that has ended."""
    lines, known, bad = 0, 0, []
    for line in sys.stdin:
        lines += 1
        service, text = line.rstrip("\n").split(" ", 1)
        if not LOUD.search(text):
            continue
        if any(re.search(pattern, text) for pattern, _ in EXPECTED.get(service, []) + (ENDING if ended else [])):
            known += 1
        else:
            bad.append(f"{service}: {text}")
    if bad or not lines:
        sys.exit("\n".join(["smoke: unexpected warnings:", *bad[:40]]) if bad else "smoke: no logs")
    print(f"{lines} lines of log, no unexpected warning or error ({known} expected)")


def ends():
    """Reads `SERVICE EXIT-CODE RESTARTS OUT-OF-MEMORY` from standard input."""
    lines = [line.split() for line in sys.stdin]
    bad = [
        line
        for line in lines
        if int(line[1]) not in ENDS_WELL.get(line[0], {0}) or line[2] != "0" or line[3] != "false"
    ]
    if bad or not lines:
        sys.exit(f"smoke: ended badly (service, exit code, restarts, out of memory): {bad or 'nothing ran'}")
    print(f"{len(lines)} containers ended in order")


if __name__ == "__main__":
    command, arguments = sys.argv[1], sys.argv[2:]
    steps = {"ports": ports, "first": first, "ready": ready, "requests": requests, "agreement": agreement, "traces": traces}
    {**steps, "logs": logs, "ends": ends}[command](*arguments)
