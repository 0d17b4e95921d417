#!/usr/bin/env bash
# What each way of handing over an image costs a live vLLM and the router, and whether predictions hold. Run setup.sh first.
# usage: hand_over.sh [IMAGES]
set -eu
cd "$(dirname "$0")/../.."
dir=${DIR:-$HOME/.cache/sightline-real-engine}
export DIR=$dir
target=${CARGO_TARGET_DIR:-target}
binary=${SIGHTLINE_BINARY:-$target/release/sightline}
[ -x "$binary" ] || cargo build --locked --release --package sightline
media=$(mktemp -d -p "$([ -w /dev/shm ] && echo /dev/shm || echo "${TMPDIR:-/tmp}")")
tests/real-engine/serve.sh "$dir/tiny-vl" --allowed-local-media-path "$media" > "$dir/hand_over.log" 2>&1 & engine=$!
trap 'kill -INT "$engine" 2>/dev/null; wait "$engine" 2>/dev/null || true; rm -rf "$media"' EXIT
for _ in $(seq "${START:-300}"); do
    curl -fs -o /dev/null http://127.0.0.1:28000/health && break
    kill -0 "$engine" || { tail -n 30 "$dir/hand_over.log" >&2; exit 1; }
    sleep 1
done
"$dir/venv/bin/python" tests/real-engine/hand_over.py "$engine" "$binary" "$media" "${1:-12}"
