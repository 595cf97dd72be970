#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json] [options of peers.py]    bench-training beside PyTorch, eager and compiled
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(readlink -f "$1")
shift
python=$("$here/../../scripts/peers.sh" torch numpy)
exec "$python" "$here/peers.py" "$program" "$@"
