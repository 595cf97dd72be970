#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: tiny.sh PROGRAM
# The program on the made-up model: both configs agree with PyTorch's embeddings; what is wrong is refused
set -euo pipefail
program=$1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here/tiny" "$work/model"
run() { "$program" --model "$work/model" --runs 1 --batch 5 --expected "$here/expected.f32" "$@"; }
run --text "$here/text.txt" | tee "$work/out"
# The last column: the difference to PyTorch.
awk '/\.toml / { n++; if (!($NF < 1e-5)) bad = 1 } END { exit bad || n != 2 }' "$work/out" || { echo "FAIL: more than 1e-5 off PyTorch"; exit 1; }
if [ -e "${TESSERA_BUILD_DIR:-build/release}/lib/tessera/plugins/tessera.backend.sim.so" ]; then
  run --text "$here/text.txt" --device sim | tee "$work/out"
  awk '/\.toml / { n++; if (!($NF < 1e-5)) bad = 1 } END { exit bad || n != 2 }' "$work/out" ||
    { echo "FAIL: more than 1e-5 off PyTorch on sim"; exit 1; }
fi

refused() { # what, wanted text
  local status=0
  run --text "$here/text.txt" >"$work/log" 2>&1 || status=$?
  grep -qF "$2" "$work/log" && [ "$status" = 2 ] || { echo "FAIL $1: status $status"; cat "$work/log"; exit 1; }
}
head -c 20000 "$here/tiny/model.safetensors" >"$work/model/model.safetensors"
refused "a truncated file" "lies outside of the file"
rm "$work/model/model.safetensors"
refused "no weights" "cannot read $work/model/model.safetensors"
cp "$here/tiny/model.safetensors" "$work/model/"
sed -i 's/"hidden_size": 8/"hidden_size": 16/' "$work/model/config.json"
refused "another size" "as config.json says"
