#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: scaffold.sh PREFIX KIND LIMIT WORK_DIR CXX SANITIZE
set -euo pipefail
prefix=$1 kind=$2 limit=$3 work=$4 cxx=$5 sanitize=${6:-}
flags=()
[ -z "$sanitize" ] || flags=("-DCMAKE_CXX_FLAGS=-fsanitize=$sanitize")
rm -rf "$work" && mkdir -p "$work"
cd "$work"

options=()
[ "$kind" != backend_kit ] || options=(--kit)
"$prefix/bin/tessera" new "${kind%_kit}" fold_scales "${options[@]}" --vendor north_sea --dir plugin
count=$(find plugin -type f | wc -l)
echo "$kind: $count files, at most $limit"
[ "$count" -le "$limit" ]
if grep -rnE '@(NAME|CLASS|VENDOR)@' plugin; then
  echo "FAIL a placeholder was left"
  exit 1
fi

cmake -S plugin -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" "${flags[@]}"
cmake --build build
[ "$(nm -D --defined-only build/lib/tessera/plugins/*.so | awk '{print $NF}')" = tsr_plugin_query ]
ctest --test-dir build --output-on-failure --no-tests=error

[ -f plugin/test.tsr ] || exit 0  # the other kinds are tested by the conformance kit alone
# The scaffold's test really looks at the plugin: with another expectation it fails.
sed -i '0,/^\/\/| .*[0-9]/s//&7/' plugin/test.tsr
if ctest --test-dir build >/dev/null; then
  echo "FAIL the scaffold's test passes whatever the plugin does"
  exit 1
fi
