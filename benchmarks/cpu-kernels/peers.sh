#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--rounds N] [--dtype f32|bf16] [--size near|far] [--only NAME] [--json]
# bench-cpu-kernels beside the same kernels in PyTorch, eager, compiled, and in bf16 compiled to round as eager, as it comes and
# with memory that is reused from call to call, and in XLA (jax.jit).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=$("$here/../../scripts/peers.sh" torch jax)
exec "$python" "$here/peers.py" "$@"
