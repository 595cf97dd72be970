#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: tiny.sh TUNE_SENTENCES SENTENCES FOLDER
# Tunes the made-up model of examples/sentences: the encoder is the same before it learns, the loss falls, and the example that
# embeds sentences reads what comes out
set -euo pipefail
tune=$1 sentences=$2 given=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { "$tune" --model "$given/tiny" --pairs "$here/pairs.tsv" --out "$work/tuned" --batch 8 --length 24 "$@"; }

# A rate of 0 changes nothing: the embeddings are still PyTorch's.
run --epochs 1 --lr 0 >"$work/out"
"$sentences" --model "$work/tuned" --runs 1 --batch 5 --expected "$given/expected.f32" --text "$given/text.txt" >"$work/embedded"
awk '/\.toml / { n++; if (!($NF < 1e-5)) bad = 1 } END { exit bad || n != 2 }' "$work/embedded" || { cat "$work/embedded"; exit 1; }

run --epochs 12 --lr 1e-2 | tee "$work/out"
awk '/^loss/ { found = 1; exit !($4 + 0 < 0.7 * $2) } END { exit !found }' "$work/out" || { echo "FAIL: the loss does not fall"; exit 1; }
"$sentences" --model "$work/tuned" --runs 1 --text "$given/text.txt" >/dev/null

refused() { # wanted text, model, pairs, batch
  local status=0
  "$tune" --model "$2" --pairs "$3" --batch "$4" --out "$work/refused" --length 24 >"$work/log" 2>&1 || status=$?
  grep -qF "$1" "$work/log" && [ "$status" = 2 ] || { echo "FAIL: status $status, expected '$1'"; cat "$work/log"; exit 1; }
}
refused "fewer than a batch" "$given/tiny" "$here/pairs.tsv" 1000
printf 'one sentence\n' >"$work/pairs"
refused "expected two sentences" "$given/tiny" "$work/pairs" 8
cp -r "$given/tiny" "$work/cut"
head -c 20000 "$given/tiny/model.safetensors" >"$work/cut/model.safetensors"
refused TSR-F054 "$work/cut" "$here/pairs.tsv" 8
