#!/usr/bin/env bash
# Brings the cluster up with locally built images, checks it from outside, and takes it down. `--keep` leaves it up;
# `--images` takes the images that are there.
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
[ -n "$images" ] || ./local-images.sh
export COMPOSE_PROJECT_NAME=sightline-smoke
export FRONTEND0_PORT=18000 FRONTEND1_PORT=18001 FRONTEND0_ADMIN_PORT=19090 FRONTEND1_ADMIN_PORT=19091 INDEXER_PORT=18200
if docker compose version >/dev/null 2>&1; then compose="docker compose"; else compose="docker-compose"; fi
run() { $compose --env-file local.env "$@"; }

down() {
    status=$?
    [ $status -eq 0 ] || run logs --tail 30 || true
    [ -n "$keep" ] || run down --volumes --timeout 40
    exit $status
}
trap down EXIT

began=$(date +%s)
run up --detach
python3 smoke.py ready
echo "up and ready after $(($(date +%s) - began)) s"
python3 smoke.py requests
python3 smoke.py agreement
loud=$(run logs --no-color | grep -E ' (WARN|ERROR) ' || true)
[ -z "$loud" ] || { echo "unexpected warnings:"; echo "$loud"; exit 1; }
[ -n "$keep" ] && exit 0
run stop --timeout 40
ids=$(docker ps --all --quiet --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME")
for id in $ids; do
    docker inspect --format '{{index .Config.Labels "com.docker.compose.service"}} {{.State.ExitCode}}' "$id"
done | python3 smoke.py ends
