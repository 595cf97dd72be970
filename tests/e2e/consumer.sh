#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A project of its own that finds the installed packages: builds a plugin written in C and, if libtessera is installed, a
# program that links it.  usage: consumer.sh PREFIX BUILD_DIR CC CXX SANITIZE
set -euo pipefail
prefix=$1 build=$2 cc=$3 cxx=$4 sanitize=${5:-}
here=$(cd "$(dirname "$0")" && pwd)
flags=()
[ -z "$sanitize" ] || flags=("-DCMAKE_C_FLAGS=-fsanitize=$sanitize" "-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize")
rm -rf "$build"
cmake -S "$here/consumer" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" "${flags[@]}"
cmake --build "$build"

manifest=$build/lib/tessera/plugins/acme.pass.nothing.toml
library=$build/lib/tessera/plugins/acme.pass.nothing.so
cat "$manifest"
[ "$(nm -D --defined-only "$library" | awk '{print $NF}')" = tsr_plugin_query ]
grep -qxF "hash = \"sha256:$(sha256sum "$library" | cut -d' ' -f1)\"" "$manifest"
grep -qxF 'provides = ["pass:nothing"]' "$manifest"
grep -qxF 'name = "loudness"' "$manifest"
case $sanitize in
  *address*) grep -qxF 'sanitizer = "address"' "$manifest" ;;
  *thread*) grep -qxF 'sanitizer = "thread"' "$manifest" ;;
  *) grep -qxF 'sanitizer = ""' "$manifest" ;;
esac
[ ! -x "$build/embedder" ] || "$build/embedder"
[ ! -x "$build/compiled" ] || "$build/compiled"
