#!/usr/bin/env bash
# The official client's checks against a real vLLM behind `sightline up`. Run setup.sh first.  usage: run.sh
set -eu
cd "$(dirname "$0")/../.."
dir=${DIR:-$HOME/.cache/sightline-real-engine}
export DIR=$dir
target=${CARGO_TARGET_DIR:-target}
binary=${SIGHTLINE_BINARY:-$target/debug/sightline}
[ -x "$binary" ] || cargo build --locked --package sightline
log=$dir/run.log
started=()
stop() { for pid in "${started[@]}"; do kill -INT "$pid" 2>/dev/null || true; done; wait; }
trap stop EXIT
ready() { # ready URL SECONDS PID
    for _ in $(seq "$2"); do
        curl -fs -o /dev/null "$1" && return
        kill -0 "$3" || break
        sleep 1
    done
    tail -n 30 "$log"* >&2
    echo "$1 did not become ready within $2 s" >&2
    exit 1
}

tests/real-engine/serve.sh "$dir/tiny-vl" > "$log.engine" 2>&1 & started+=($!)
ready http://127.0.0.1:28000/health 300 "${started[0]}"
"$binary" up --port 18100 --frontends 2 --model-dir fixtures/models/tiny-vl --block-size 32 \
    --media-allow-net 127.0.0.0/8 \
    --engine http://127.0.0.1:28000,kv-events=tcp://127.0.0.1:25557,replay=tcp://127.0.0.1:25657 \
    > "$log.up" 2>&1 & started+=($!)
ready http://127.0.0.1:18101/health/ready 60 "${started[1]}"
tests/openai-client/run.sh --frontend http://127.0.0.1:18100 --frontend http://127.0.0.1:18101 --block-size 32
