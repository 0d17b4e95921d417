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

# runner: cargo-nextest where it is installed, else cargo's own.
run_tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run "$@"
    else
        say "cargo-nextest is not installed: falling back to cargo test"
        cargo test --no-fail-fast "$@"
    fi
}
