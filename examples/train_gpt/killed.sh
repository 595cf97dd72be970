#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that is killed and goes on ends with the same bits as one that is not, and writes the same text.
# usage: killed.sh TRAIN_GPT TEXT
set -euo pipefail
train=$1 text=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
options=(--text "$text" --layers 2 --heads 2 --width 32 --context 32 --batch 8 --steps 40 --warmup 5 --save-every 1 --sample 50)

"$train" "${options[@]}" --out "$folder/whole" >"$folder/whole.txt"

# Killed three times, each time once it has gone on for a while: a checkpoint newer than the one that it began with is there.
touch "$folder/before"
killed=0
for _ in 1 2 3; do
  "$train" "${options[@]}" --out "$folder/killed" --resume >"$folder/killed.txt" 2>"$folder/killed.log" &
  process=$!
  for _ in $(seq 20000); do
    [ ! "$folder/killed/last.safetensors" -nt "$folder/before" ] || break
    kill -0 "$process" 2>/dev/null || break
    sleep 0.01
  done
  if kill -9 "$process" 2>/dev/null; then killed=$((killed + 1)); fi
  wait "$process" 2>/dev/null || true
  [ ! -f "$folder/killed/last.safetensors" ] || touch -r "$folder/killed/last.safetensors" "$folder/before"
done
[ "$killed" -gt 0 ] || { echo "no run was killed: all of them were too fast"; exit 1; }
"$train" "${options[@]}" --out "$folder/killed" --resume >"$folder/killed.txt"

cmp "$folder/whole/last.safetensors" "$folder/killed/last.safetensors"
cmp "$folder/whole.txt" "$folder/killed.txt"
grep -q '</svg>' "$folder/killed/loss.svg"
# Another run's folder is refused, and so is one that is in use already without --resume.
refused() { # what the message says, arguments
  local says=$1
  shift
  if "$train" "${options[@]}" --out "$folder/killed" "$@" 2>"$folder/refused.log" >&2; then
    echo "not refused: $*"
    exit 1
  fi
  grep -q "$says" "$folder/refused.log"
}
refused 'of another run' --resume --lr 1
refused 'there from another run'
# A checkpoint cut short is refused and left as it is.
head -c 1000 "$folder/whole/last.safetensors" >"$folder/killed/last.safetensors"
refused TSR-F054 --resume
echo "killed $killed times: the same bits"
