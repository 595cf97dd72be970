#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: integers.sh [--json] [options of integers.py]
# Models of 8-bit integers beside the same models in f32, ours and ONNX Runtime's
# It runs build/release/bin/bench-cpu-models, or the program that TESSERA_BENCH names.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$here/../..
python=$("$root/scripts/peers.sh" torch torchvision transformers onnx onnxscript onnxruntime)
exec "$python" "$here/integers.py" "${TESSERA_BENCH:-$root/build/release/bin/bench-cpu-models}" "${TESSERA_MODELS:-$root/build/models}" "$@"
