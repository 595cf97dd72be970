#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compiles every text that generate wrote to a cubin, and lists registers, shared memory and spills of each kernel in
# FOLDER/registers.txt.
# usage: compile.sh FOLDER [ARCHITECTURE]
set -euo pipefail
folder=$1 arch=${2:-sm_90a}
for text in "$folder"/*.cu; do
  log=${text%.cu}.log
  nvcc -cubin -gencode="arch=compute_${arch#sm_},code=$arch" --fmad=false -Xptxas -v -diag-suppress 177 "$text" -o "${text%.cu}.cubin" 2>"$log" ||
    { cat "$log" >&2; exit 1; }
  sed -nE "s/.*Compiling entry function '([^']*)'.*/\1/p; s/.* ([0-9]+ bytes spill stores).*/  \1/p; s/.*Used ([0-9]+ registers)(, used [0-9]+ barriers)?,?(.*)/  \1\3/p" "$log"
done >"$folder/registers.txt"
