#!/usr/bin/env bash
# Passes the tests: unit, property, conformance and end to end, and the official OpenAI client against `sightline up`.
. "$(dirname "$0")/servers.sh"
run_tests --workspace --locked "$@"
tests/openai-client/run.sh
