#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json] [--recompile]
# bench-dispatch (or bench-recompile), then the same calls through torch.compile and jax.jit, and the figures side by side.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
python=$("$here/../../scripts/peers.sh" torch jax)
ours=$(mktemp)
trap 'rm -f "$ours"' EXIT
"$program" --json >"$ours"
"$python" "$here/peers.py" "$ours" "$@"
