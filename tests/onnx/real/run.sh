#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: run.sh TESSERA [NAME...]    real models against PyTorch: exports what is not there yet (export.py), then compares (compare.py)
# PyTorch lives in a virtual environment of its own: TESSERA_ONNX_PEERS, build/peers_onnx by default (5 GB on the first run). Models go to
# TESSERA_ONNX_MODELS, build/onnx_real by default (3 GB).
set -euo pipefail
tool=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
venv=${TESSERA_ONNX_PEERS:-$root/build/peers_onnx}
models=${TESSERA_ONNX_MODELS:-$root/build/onnx_real}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
for package in torch torchvision transformers onnx onnxscript; do
  "$venv/bin/python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)" ||
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$package"
done
encoder=()
if weights=$("$root/examples/sentences/fetch.sh"); then encoder=(--encoder "$weights"); fi
"$venv/bin/python" "$here/export.py" "$models" "$@" "${encoder[@]}"
exec "$venv/bin/python" "$here/compare.py" "$tool" "$models" "$@"
