#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The conformance kit on every backend of this repository, whole: all levels, all cases. usage: conformance.sh [BACKEND...]
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
build=${TESSERA_BUILD:-build/release}
reports=build/conformance
mkdir -p "$reports"
bad=0
one() { # name, plugin, further arguments
  local name=$1 library=$build/lib/tessera/plugins/tessera.backend.$2.so expect=tests/conformance/$1.expect
  shift 2
  [ -f "$library" ] || return 0
  [ ! -f "$expect" ] || set -- --expect "$expect" "$@"
  echo "$name" >&2
  "$build/bin/tessera" plugin test "$library" --level L4 --all-cases --progress --html "$reports/$name.html" \
    --junit "$reports/$name.xml" "$@" || bad=1
}
for backend in "${@:-eager reference null cpu sim cuda}"; do
  for name in $backend; do
    case $name in
      sim)
        one sim_32 sim --set 'sim.kernels="text"' --set 'sim.wave="32"'
        one sim_64 sim --set 'sim.kernels="text"' --set 'sim.wave="64"'
        ;;
      cuda)
        fake=$PWD/$build/tests/cuda/libfake_cuda.so
        [ ! -f "$fake" ] || one cuda cuda --set "cuda.driver=\"$fake\"" --set "cuda.nvrtc=\"$fake\"" --set "cuda.cublaslt=\"$fake\""
        ;;
      *) one "$name" "$name" ;;
    esac
  done
done
exit "$bad"
