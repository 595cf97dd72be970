#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: torch.sh SCRIPT [ARG...]    runs a script by the Python of the environment that has PyTorch: TESSERA_TORCH_ENV, else
# ~/.cache/tessera/torch. Without one it says so and exits with 77, which ctest counts as skipped.
set -euo pipefail
venv=${TESSERA_TORCH_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/tessera/torch}
if [ ! -x "$venv/bin/python" ]; then
  echo "left out: no environment with PyTorch in $venv; './dev test --peers torch' makes one (5 GB), TESSERA_TORCH_ENV names another"
  exit 77
fi
exec "$venv/bin/python" "$@"
