#!/usr/bin/env bash
# Runs the official OpenAI Python client against `sightline up`. Needs Python; makes its own virtual environment.
set -eu
cd "$(dirname "$0")/../.."
target=${CARGO_TARGET_DIR:-target}
venv=$target/openai-client-venv
if ! "$venv/bin/python" -c 'import openai' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check openai
fi
binary=${SIGHTLINE_BINARY:-$target/debug/sightline}
[ -x "$binary" ] || cargo build --locked --package sightline
exec "$venv/bin/python" tests/openai-client/client.py --binary "$binary" "$@"
