#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: run.sh TESSERA [NAME...]
# Real models against PyTorch: exports what is not there yet (export.py), then compares (compare.py) PyTorch comes from the
# peers' environment (scripts/peers.sh). Models go to TESSERA_ONNX_MODELS, build/onnx_real by default (3 GB).
set -euo pipefail
tool=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
models=${TESSERA_ONNX_MODELS:-$root/build/onnx_real}
python=$("$root/scripts/peers.sh" torch torchvision transformers onnx onnxscript)
encoder=()
if weights=$("$root/examples/sentences/fetch.sh"); then encoder=(--encoder "$weights"); fi
"$python" "$here/export.py" "$models" "$@" "${encoder[@]}"
exec "$python" "$here/compare.py" "$tool" "$models" "$@"
