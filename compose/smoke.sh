#!/usr/bin/env bash
# Brings the cluster up with locally built images, checks it from outside, and takes it down. `--keep` leaves it up;
# `--images` takes the images that are there. COMPOSE names the program, by default `docker compose` or docker-compose.
set -euo pipefail
cd "$(dirname "$0")"
keep= images=
for argument in "$@"; do
    case $argument in
    --keep) keep=yes ;;
    --images) images=yes ;;
    *) echo "usage: smoke.sh [--images] [--keep]" >&2; exit 2 ;;
    esac
done
. ./project.sh
[ -n "$images" ] || ./local-images.sh
clear_dead
begin_project smoke

down() {
    status=$?
    trap - EXIT INT TERM
    if [ "$status" -ne 0 ]; then
        echo "smoke: failed; the last of every log:" >&2
        run logs --no-color --tail 30 >&2 || true
    fi
    if [ -n "$keep" ]; then
        echo "left up: project $COMPOSE_PROJECT_NAME, $(env | grep -E '_PORT=[0-9]+$' | sort | tr '\n' ' ')"
        exit "$status"
    fi
    run down --volumes --timeout 40 >"$logs/down" 2>&1 || { status=1; cat "$logs/down" >&2; }
    left=$(belongings "$COMPOSE_PROJECT_NAME")
    if [ -n "$left" ]; then
        echo "smoke: down left $left" >&2
        remove "$COMPOSE_PROJECT_NAME"
        status=1
    fi
    rm -r "$logs"
    [ "$status" -ne 0 ] || echo "down: no container, volume or network is left"
    exit "$status"
}
logs=$(mktemp -d)
trap down EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

began=$(date +%s.%N)
run up --detach >"$logs/up" 2>&1 || { cat "$logs/up" >&2; exit 1; }
grep -i 'warn' "$logs/up" && { echo "smoke: warnings of compose" >&2; exit 1; }
python3 smoke.py first "$began"
python3 smoke.py ready
python3 smoke.py requests
python3 smoke.py agreement
if services | grep -qx prometheus; then
    python3 dashboard.py queries
else
    echo "no Prometheus here: its targets and the dashboard's queries are not checked"
fi
[ -z "$keep" ] || { lines_of_logs | python3 smoke.py logs; exit 0; }
run stop --timeout 40 >"$logs/stop" 2>&1 || { cat "$logs/stop" >&2; exit 1; }
lines_of_logs | python3 smoke.py logs
for id in $(containers "$COMPOSE_PROJECT_NAME"); do
    docker inspect --format \
        '{{index .Config.Labels "com.docker.compose.service"}} {{.State.ExitCode}} {{.RestartCount}} {{.State.OOMKilled}}' "$id"
done | python3 smoke.py ends
