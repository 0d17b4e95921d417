"""Checks Grafana's dashboard: dashboard.py structure | queries (against the Prometheus of a running cluster)."""

import json
import os
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse

from cluster import ask, chat, frontends, until

GRAFANA = pathlib.Path(__file__).parent / "grafana"
TARGETS = {"frontend": 2, "agent": 4, "indexer": 1, "engine": 4, "etcd": 1, "prometheus": 1}
# What has no series while nothing goes wrong: its counter appears with the first event.
CALM = {
    "sightline_fallbacks_total": "every prompt is understood",
    "sightline_sheds_total": "nothing is shed below the bounds",
    "sightline_retries_total": "no worker fails",
    "sightline_replica_repairs_total": "no replica loses a message",
    "sightline_replica_gaps_total": "no replica loses a message",
}


def dashboards():
    for path in sorted((GRAFANA / "dashboards").glob("*.json")):
        yield path.name, json.loads(path.read_text())


def targets(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel, target


def wrong(dashboard, sources):
    """What Grafana would not show, or show over something else."""
    seen, cells = set(), {}
    if not dashboard.get("uid") or not dashboard.get("title") or not isinstance(dashboard.get("schemaVersion"), int):
        yield "no uid, title or schema version"
    for panel in dashboard["panels"]:
        name, at = panel.get("title"), panel["gridPos"]
        if panel["id"] in seen or not name:
            yield f"panel {panel['id']} has no title or another one's id"
        seen.add(panel["id"])
        if at["x"] < 0 or at["w"] < 1 or at["h"] < 1 or at["x"] + at["w"] > 24:
            yield f"{name}: beyond the grid's 24 columns"
        for cell in ((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])):
            if cells.setdefault(cell, name) != name:
                yield f"{name}: lies over {cells[cell]}"
        if panel["type"] not in {"timeseries", "stat", "row", "table", "traces", "bargauge", "text"}:
            yield f"{name}: unknown kind {panel['type']}"
        letters = [target["refId"] for target in panel.get("targets", [])]
        if len(set(letters)) != len(letters) or (panel["type"] not in {"row", "text"} and not letters):
            yield f"{name}: no queries, or two of one name"
    for panel, target in targets(dashboard):
        source = (target.get("datasource") or panel["datasource"])["uid"]
        if source not in sources:
            yield f"{panel['title']}: no data source {source} is provisioned"
        if source == "prometheus" and not target.get("expr"):
            yield f"{panel['title']}: no expression"


def structure():
    provisioned = (GRAFANA / "provisioning/datasources").glob("*.yml")
    sources = {uid for path in provisioned for uid in re.findall(r"^\s*uid: (\S+)$", path.read_text(), re.MULTILINE)}
    count = 0
    for name, dashboard in dashboards():
        bad = list(wrong(dashboard, sources))
        if bad:
            sys.exit("\n".join(f"{name}: {what}" for what in bad))
        count += len(dashboard["panels"])
    if not count:
        sys.exit("no dashboard")
    print(f"{count} panels, on data sources {', '.join(sorted(sources))}: in order")


def prometheus(path, **parameters):
    base = f"http://127.0.0.1:{os.environ['PROMETHEUS_PORT']}/api/v1"
    try:
        return ask(f"{base}/{path}?{urllib.parse.urlencode(parameters)}")["data"]
    except urllib.error.HTTPError as refused:
        if refused.code == 400:  # the expression does not parse
            sys.exit(f"Prometheus refuses {parameters}: {refused.read().decode()}")
        raise


def all_up():
    up = [target for target in prometheus("targets")["activeTargets"] if target["health"] == "up"]
    return {job: sum(target["labels"]["job"] == job for target in up) for job in TARGETS} == TARGETS


def queries():
    until("every target is up", all_up, within=60)
    for frontend in frontends():
        for seed in range(500, 503):
            ask(f"{frontend}/v1/chat/completions", chat(seed))
    expressions = [target["expr"] for _, board in dashboards() for _, target in targets(board) if target.get("expr")]
    answered, calm, began = set(), {}, time.monotonic()
    while True:
        for expression in expressions:
            series = prometheus("query", query=expression)["result"]
            if any(one["value"][1] != "NaN" for one in series):
                answered.add(expression)
        empty = [expression for expression in expressions if expression not in answered]
        calm = {e: why for e in empty for name, why in CALM.items() if name in e}
        if len(calm) == len(empty) or time.monotonic() - began > 45:
            break
        time.sleep(1)
    for expression, why in calm.items():
        print(f"no series, for {why}: {expression}")
    missing = [expression for expression in empty if expression not in calm]
    if missing:
        sys.exit("\n".join(["no series:", *missing]))
    print(f"{sum(TARGETS.values())} targets are up; {len(answered)} of the dashboard's {len(expressions)} queries have series")


if __name__ == "__main__":
    {"structure": structure, "queries": queries}[sys.argv[1]]()
