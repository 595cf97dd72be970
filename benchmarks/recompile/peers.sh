#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json]    bench-recompile beside torch.compile and jax.jit
set -euo pipefail
exec "$(cd "$(dirname "$0")" && pwd)/../dispatch/peers.sh" "$@" --recompile
