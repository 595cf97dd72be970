#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json]    bench-cpu-kernels, then the same kernels in PyTorch, eager and compiled, as it comes and with memory that is
# reused from call to call. TESSERA_PEERS: a virtual environment that has torch; by default one is made under build/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
venv=${TESSERA_PEERS:-build/peers}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" >&2
fi
"$venv/bin/python" -c "import torch" 2>/dev/null || "$venv/bin/pip" install --quiet torch >&2
ours=$(mktemp)
trap 'rm -f "$ours" "$ours".*' EXIT
"$program" --json >"$ours"
"$venv/bin/python" "$here/peers.py" "$ours" >"$ours.fresh"
# glibc gives large blocks back to the system when they are freed, and the next result then pays for its pages again; these settings keep them.
MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=1099511627776 MALLOC_TOP_PAD_=1073741824 \
  "$venv/bin/python" "$here/peers.py" "$ours" >"$ours.kept"
exec "$venv/bin/python" "$here/peers.py" --table "$ours" "$ours.fresh" "$ours.kept" "$@"
