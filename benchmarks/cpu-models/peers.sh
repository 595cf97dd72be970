#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: peers.sh PROGRAM [--json] [options of compare.py]    models through ours and the peers, in a virtual environment of its own
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$(readlink -f "$1")
shift
venv=${TESSERA_PEERS:-build/peers}
models=${TESSERA_MODELS:-build/models}
if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv" >&2
fi
for package in torch torchvision transformers onnx onnxscript onnxruntime openvino; do
  "$venv/bin/python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('$package'))" ||
    "$venv/bin/pip" install --quiet "$package" >&2
done
exec "$venv/bin/python" "$here/compare.py" "$program" "$models" "$@"
