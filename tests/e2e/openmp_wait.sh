#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libgomp's threads wait busily for a bounded time in a process of ours, and for as long as the user says where he says it. libgomp prints what it has
# read; the variable is not left in the environment.
# usage: openmp_wait.sh COMMAND CONFIG MODEL
set -euo pipefail
command=$1 config=$2 model=$3
unset GOMP_SPINCOUNT OMP_WAIT_POLICY

spins() { # VARIABLE=VALUE.. -> what libgomp took
  env OMP_DISPLAY_ENV=VERBOSE "$@" "$command" run "$model" --config "$config" 2>&1 >/dev/null | sed -nE "s/.*GOMP_SPINCOUNT = '([0-9]+)'.*/\1/p"
}

n=$(spins)
if [ -z "$n" ]; then
  echo "the OpenMP runtime here is not libgomp; nothing to check"
  exit 0
fi
echo "bound: $n turns"
[ "$n" -ge 100 ] && [ "$n" -le 100000 ] || { echo "FAIL expected 100 to 100000 turns, found $n"; exit 1; }
[ "$(spins GOMP_SPINCOUNT=12345)" = 12345 ] || { echo "FAIL GOMP_SPINCOUNT=12345 is not obeyed: $(spins GOMP_SPINCOUNT=12345)"; exit 1; }
[ "$(spins OMP_WAIT_POLICY=passive)" = 0 ] || { echo "FAIL OMP_WAIT_POLICY=passive is not obeyed"; exit 1; }
