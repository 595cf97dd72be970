#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: instructions.sh PROGRAM [FIGURE...]    instructions per call of each figure of bench-dispatch, counted by valgrind
# The difference between two runs of different length: what the program does before its first call drops out.
set -euo pipefail
program=$1
shift
[ $# -gt 0 ] || set -- tensors/1 tensors/8 tensors/64 entries/64 training/{returned,replaced,unrecorded,recorded}
count() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" --only "$1" --calls "$2" 2>&1 >/dev/null |
    awk '/Collected/ { print $4 }'
}
for figure in "$@"; do
  few=$(count "$figure" 2000)
  many=$(count "$figure" 12000)
  awk -v f="$figure" -v a="$few" -v b="$many" 'BEGIN { printf "%-20s %8.1f\n", f, (b - a) / 10000 }'
done
