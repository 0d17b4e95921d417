#!/usr/bin/env bash
# Builds Sightline and runs `sightline up` with the arguments given (try --help).
. "$(dirname "$0")/need.sh"
say "building (some minutes the first time)"
cargo build --release --locked --package sightline
exec "${CARGO_TARGET_DIR:-target}/release/sightline" up "$@"
