#!/usr/bin/env bash
# Brings the cluster up with locally built images, sends requests through both frontends while the profile `chaos` breaks
# and heals its parts, and tells what failed and how long healing took. `--images` takes the images that are there.
# CHAOS_ROUNDS (default 6), CHAOS_SEED, CHAOS_FAULT_SECONDS and CHAOS_PAUSE_SECONDS (8) as chaos.sh knows them; each fault
# has to be forgotten CHAOS_HEALED_SECONDS (5) after it was healed, which takes a machine with nothing else to do.
set -euo pipefail
cd "$(dirname "$0")"
. ./project.sh
[ "${1:-}" = --images ] || ./local-images.sh
docker image inspect sightline-chaos:local >/dev/null 2>&1 || { echo "there is no image of the driver of faults" >&2; exit 1; }
export CHAOS_ROUNDS=${CHAOS_ROUNDS:-6} CHAOS_PAUSE_SECONDS=${CHAOS_PAUSE_SECONDS:-8}
clear_dead
begin_project chaos
take_down_at_exit

bring_up
python3 smoke.py ready
COMPOSE_PROFILES=chaos run up --detach --no-deps chaos >"$logs/chaos" 2>&1 || { cat "$logs/chaos" >&2; exit 1; }
python3 chaos.py "$(docker ps --all --quiet --filter "label=com.docker.compose.project=$COMPOSE_PROJECT_NAME" \
    --filter label=com.docker.compose.service=chaos)"
# What was there before and what comes now is known and predicted as if nothing had been.
python3 smoke.py requests
python3 smoke.py agreement
