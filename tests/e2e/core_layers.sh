#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A folder of core/src is a layer. It includes headers of its own line of this list, and of the lines before it.
# The driver alone runs the stages of a compile.
# usage: core_layers.sh SOURCE_DIR
set -euo pipefail
cd "$1"
layers='support log
config plugin
trace cache ir
context pass
memory autograd
plan
run
compile
graph_cache
capture
dispatch eager
api'

bad=0
fail() { echo "FAIL $*"; bad=1; }

declare -A line_of
number=0
while read -r -a names; do
  number=$((number + 1))
  for name in "${names[@]}"; do line_of[$name]=$number; done
done <<<"$layers"

for folder in core/src/*/; do
  name=$(basename "$folder")
  [ -n "${line_of[$name]:-}" ] || fail "$folder is in no line of the list of layers"
done

checked=0
while IFS=: read -r file line header; do
  from=$(cut -d/ -f3 <<<"$file") to=${header%%/*}
  checked=$((checked + 1))
  [ -n "${line_of[$to]:-}" ] && [ -n "${line_of[$from]:-}" ] || continue
  [ "${line_of[$to]}" -le "${line_of[$from]}" ] ||
    fail "$file:$line includes $header, of a layer above its own"
done < <(grep -rnHoE '^#include "[a-z_]+/[a-z_0-9]+\.hpp"' core/src | sed -E 's/#include "([^"]+)"/\1/' |
  awk -F: '{ split($1, f, "/"); split($3, t, "/"); if (f[3] != t[1]) print }')
[ "$checked" -gt 200 ] || fail "only $checked includes between folders were found"

# compile/driver.cpp is the list of stages, short enough to be read at once. Nobody else runs two of them.
driver=core/src/compile/driver.cpp
length=$(wc -l <$driver)
[ "$length" -le 250 ] || fail "$driver has $length lines, at most 250 are allowed"
stages='run_passes expand_gradients place_on_devices assign_backends decompose_refused order_transfers build_plan
  compile_kernels Executable::make'
while read -r file; do
  [ "$file" != $driver ] || continue
  # Calls are indented or follow something; what defines or declares a stage stands at the beginning of a line.
  code=$(sed -E 's,//.*,,; /^[A-Za-z].*\(/d' "$file")
  found=
  for stage in $stages; do
    if grep -qE "(^|[^A-Za-z_:.>])$stage\(" <<<"$code"; then found="$found $stage"; fi
  done
  [ "$(wc -w <<<"$found")" -le 1 ] || fail "$file runs several stages:$found; only $driver does"
done < <(find core/src -name '*.cpp' -o -name '*.hpp')

echo "looked at $checked includes between folders of core/src, and at who runs stages"
exit $bad
