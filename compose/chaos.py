"""Sends requests while chaos.sh breaks and heals: chaos.py CONTAINER, which runs it. Tells what failed, and how soon all is whole."""

import datetime
import http.client
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from cluster import WORKERS, admins, ask, chat, frontends, settle, until, whole

CLIENTS = 6
PREFIXES = 24
REQUEST_S = 60
HEALED_S = float(os.environ.get("CHAOS_HEALED_SECONDS", "5"))
LINE = re.compile(r"^(\S+) chaos: round (\d+): (kill|pause|cut|healed) (\S+)$")


class Traffic:
    """Clients in closed loops that follow readiness, as a balancer does."""

    def __init__(self):
        self.answered, self.failed, self.turned, self.ending = 0, [], 0, False
        self.usable = [True, True]
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self.probe, args=(n,)) for n in range(len(frontends()))]
        self.threads += [threading.Thread(target=self.client) for _ in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def end(self):
        self.ending = True
        for thread in self.threads:
            thread.join()

    def probe(self, n):
        while not self.ending:
            try:
                self.usable[n] = ask(f"{frontends()[n]}/health/ready", timeout=1)["status"] == "ready"
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                self.usable[n] = False
            time.sleep(0.2)

    def client(self):
        while not self.ending:
            number = next(self.numbers)
            order = [number % 2, 1 - number % 2]
            order.sort(key=lambda n: not self.usable[n])
            self.request(number, order)

    def request(self, number, order):
        """A connection that is refused has sent nothing: the next frontend is asked."""
        for n in order:
            began, name = time.time(), f"chaos-{os.getpid()}-{number}"
            try:
                self.send(n, name, number)
            except urllib.error.HTTPError as refused:
                why = f"{refused.code} {refused.read(300).decode(errors='replace')}"
            except (OSError, http.client.HTTPException, ValueError) as cause:
                if isinstance(getattr(cause, "reason", cause), ConnectionRefusedError):
                    with self.lock:
                        self.turned += 1
                    continue
                why = repr(cause)
            else:
                with self.lock:
                    self.answered += 1
                return
            worker = self.worker(n, name)
            with self.lock:
                self.failed.append({"began": began, "ended": time.time(), "frontend": f"frontend{n}", "worker": worker, "why": why})
            return
        time.sleep(0.1)

    @staticmethod
    def send(n, name, number):
        body = chat(1000 + number * 7 % PREFIXES, image=number % 3 > 0, tokens=8, stream=number % 2 > 0)
        headers = {"content-type": "application/json", "x-request-id": name}
        request = urllib.request.Request(f"{frontends()[n]}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=REQUEST_S) as answer:
            text = answer.read().decode()
        if number % 2 > 0:
            if '"error"' in text or not text.rstrip().endswith("data: [DONE]"):
                raise ValueError(f"stream ends with {text[-300:]}")
        elif not json.loads(text)["choices"]:
            raise ValueError("no choice")

    @staticmethod
    def worker(n, name):
        """Where the request went, as its frontend remembers."""
        try:
            return ask(f"{admins()[n]}/v1/explain/{name}", timeout=2)["worker"]
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return None


class Fault:
    def __init__(self, round_, kind, part, began):
        self.round, self.kind, self.part, self.began, self.healed = round_, kind, part, began, None
        self.whole_s = None

    def excuses(self, failure):
        """Whether the request was on the broken process: at its frontend or its engine, before it was whole again."""
        whole_at = self.healed + (self.whole_s or 0) if self.healed else time.time()
        meets = failure["began"] <= whole_at and failure["ended"] >= self.began
        engine = failure["worker"] and self.part == f"engine{failure['worker'][1:]}"
        return meets and (failure["frontend"] == self.part or engine)


def lines(container):
    follow = subprocess.Popen(["docker", "logs", "--timestamps", "--follow", container], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in follow.stdout:
        found = LINE.match(line.strip())
        if found:
            when = datetime.datetime.fromisoformat(re.sub(r"\.(\d{6})\d*Z$", r".\1+00:00", found[1])).timestamp()
            yield when, int(found[2]), found[3], found[4]
        elif "chaos: done" not in line:
            print(line, end="")
    code = subprocess.run(["docker", "wait", container], check=True, capture_output=True, text=True).stdout.strip()
    if code != "0":
        sys.exit(f"chaos.sh has ended with {code}")


def agreed():
    for frontend, admin in zip(frontends(), admins()):
        if ask(f"{frontend}/health/ready", timeout=1)["status"] != "ready" or not whole(admin):
            return False
        index = ask(f"{admin}/admin/index", timeout=2)
        if index["agreement"] != 1 or len(index["holders"]) != WORKERS:
            return False
    return True


def main(container):
    traffic, faults = Traffic(), []
    try:
        for when, round_, kind, part in lines(container):
            if kind != "healed":
                faults.append(Fault(round_, kind, part, when))
                continue
            fault = faults[-1]
            fault.healed = when
            until(f"all is whole after {fault.kind} {part}", agreed, within=60)
            fault.whole_s = max(0.0, time.time() - when)
            print(f"round {round_}: {fault.kind} {part} for {when - fault.began:.1f} s, whole {fault.whole_s:.1f} s after", flush=True)
    finally:
        traffic.end()
    settle(within=30)
    guilty = [failure for failure in traffic.failed if not any(fault.excuses(failure) for fault in faults)]
    slow = [fault for fault in faults if fault.whole_s is None or fault.whole_s > HEALED_S]
    print(
        f"{len(faults)} faults, {traffic.answered} requests answered, {len(traffic.failed) - len(guilty)} failed on a broken process, "
        f"{len(guilty)} failed elsewhere, {traffic.turned} turned to the other frontend; nothing is in flight"
    )
    for failure in traffic.failed:
        print(f"{'FAILED' if failure in guilty else 'on a broken process'}: {failure['frontend']} {failure['worker']} {failure['why'][:200]}")
    if guilty or slow or not faults or not traffic.answered:
        sys.exit(f"chaos: {len(guilty)} requests failed, {len(slow)} of {len(faults)} faults took more than {HEALED_S} s to heal")


if __name__ == "__main__":
    main(sys.argv[1])
