#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A folder of core/src is a layer. It includes headers of its own line of this list, and of the lines before it.
# usage: core_layers.sh SOURCE_DIR
set -euo pipefail
cd "$1"
layers='support log
config plugin
trace cache ir
context pass autograd
compile runtime
capture
dispatch
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

echo "looked at $checked includes between folders of core/src"
exit $bad
