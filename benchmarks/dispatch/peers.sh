#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json] [--recompile]
# bench-dispatch (or bench-recompile), then the same calls through torch.compile and jax.jit, in a virtual environment of their own
# (TESSERA_PEERS names one to use again), and the figures side by side.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
venv=${TESSERA_PEERS:-build/peers}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" >&2
fi
for package in torch jax; do
  "$venv/bin/python" -c "import $package" 2>/dev/null || "$venv/bin/pip" install --quiet "$package" >&2
done
ours=$(mktemp)
trap 'rm -f "$ours"' EXIT
"$program" --json >"$ours"
"$venv/bin/python" "$here/peers.py" "$ours" "$@"
