#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every plugin exports tsr_plugin_query and nothing else; libtessera exports tsr_get_api and nothing else.
# usage: boundary_symbols.sh PLUGIN_DIR LIB_DIR
set -euo pipefail
plugins=$1 libdir=$2 bad=0 count=0

exports() { nm -D --defined-only "$1" | awk '{print $NF}' | sed 's/@.*//' | sort | tr '\n' ' ' | sed 's/ $//'; }

expect() { # file, the one symbol
  local found
  found=$(exports "$1")
  if [ "$found" = "$2" ]; then
    echo "ok   $(basename "$1"): $found"
  else
    echo "FAIL $1 exports '$found'; expected only '$2'. Build it with tessera_add_plugin(), which hides the rest."
    bad=1
  fi
}

for library in "$plugins"/*.so; do
  [ -e "$library" ] || continue
  expect "$library" tsr_plugin_query
  count=$((count + 1))
done
[ ! -e "$libdir/libtessera.so" ] || expect "$(readlink -f "$libdir/libtessera.so")" tsr_get_api
if [ "$count" = 0 ]; then
  echo "FAIL no plugin in $plugins"
  bad=1
fi
exit $bad
