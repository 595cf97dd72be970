#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json]    bench-cpu-kernels, then the same kernels in PyTorch, eager and compiled, as it comes and with memory that is
# reused from call to call.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
python=$("$here/../../scripts/peers.sh" torch)
ours=$(mktemp)
trap 'rm -f "$ours" "$ours".*' EXIT
"$program" --json --relaxed >"$ours"
"$python" "$here/peers.py" "$ours" >"$ours.fresh"
# glibc gives large blocks back to the system when they are freed, and the next result then pays for its pages again; these settings keep them.
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 MALLOC_TOP_PAD_=1073741824 \
  "$python" "$here/peers.py" "$ours" >"$ours.kept"
exec "$python" "$here/peers.py" --table "$ours" "$ours.fresh" "$ours.kept" "$@"
