#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json]    bench-dispatch, then the same calls through torch.compile and jax.jit, in a virtual environment of its own
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
"$program" "$@"
exec "$venv/bin/python" "$here/peers.py" "$@"
