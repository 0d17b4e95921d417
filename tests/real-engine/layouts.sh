#!/usr/bin/env bash
# The router's prompts against a live vLLM's, token by token. Run setup.sh first.
# usage: layouts.sh [MODEL_DIR]: by default setup.sh's tiny-vl; any directory with weights will do.
set -eu
cd "$(dirname "$0")/../.."
dir=${DIR:-$HOME/.cache/sightline-real-engine}
export DIR=$dir
model=${1:-$dir/tiny-vl}
name=$(basename "$model")
port=${PORT:-28000}
export PORT=$port
tool=${CARGO_TARGET_DIR:-target}/debug/examples/prompt_tokens
[ -x "$tool" ] || cargo build --locked --package prompt --example prompt_tokens
tests/real-engine/serve.sh "$model" --trust-request-chat-template > "$dir/layouts.log" 2>&1 & engine=$!
trap 'kill -INT "$engine" 2>/dev/null; wait "$engine" 2>/dev/null || true' EXIT
for _ in $(seq "${START:-300}"); do
    curl -fs -o /dev/null "http://127.0.0.1:$port/health" && break
    kill -0 "$engine" || { tail -n 30 "$dir/layouts.log" >&2; exit 1; }
    sleep 1
done
"$dir/venv/bin/python" tests/real-engine/layouts.py "http://127.0.0.1:$port" "$name" "$model" "$tool" \
    tests/real-engine/tools.jinja
