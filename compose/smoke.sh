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

take_down_at_exit

began=$(date +%s.%N)
bring_up
python3 smoke.py first "$began"
python3 smoke.py ready
python3 smoke.py requests
python3 smoke.py agreement
if services | grep -qx collector; then
    python3 smoke.py traces
else
    echo "no collector here: traces are not checked"
fi
if services | grep -qx prometheus; then
    python3 dashboard.py queries
else
    echo "no Prometheus here: its targets and the dashboard's queries are not checked"
fi
lines_of_logs | python3 smoke.py logs
[ -z "$keep" ] || exit 0
stop_all
lines_of_logs | python3 smoke.py logs ended
