#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json] [options of compare.py]    models through ours and the peers
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(readlink -f "$1")
shift
models=${TESSERA_MODELS:-build/models}
# JAX compresses what it caches; without zstandard that takes longer than to compile GPT-2.
python=$("$here/../../scripts/peers.sh" torch torchvision transformers jax zstandard onnx onnxscript onnxruntime openvino)
exec "$python" "$here/compare.py" "$program" "$models" "$@"
