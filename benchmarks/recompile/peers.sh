#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json]    bench-recompile, then the peers of bench-dispatch, whose figures end with PyTorch's recompile
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
"$@"
shift
exec "$here/../dispatch/peers.sh" true "$@"
