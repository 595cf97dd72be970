#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The whole ONNX backend test suite against one config.  usage: suite.sh ONNX_SUITE CONFIG [options of onnx_suite]
# suite.sh --path: makes the cases, and prints where they are. The cases are made once per source tree from the PyPI package
# onnx; where neither they nor the package can be had, the test is skipped (exit status 77). TESSERA_ONNX_SUITE names a
# directory that holds them already.
set -euo pipefail
version=1.23.2
if [ "$1" != --path ]; then
  tool=$1 config=$2
  shift 2
fi
here=$(cd "$(dirname "$0")" && pwd)
suite=${TESSERA_ONNX_SUITE:-$TESSERA_SOURCE_DIR/build/onnx_suite-$version}
if [ ! -f "$suite/suite.json" ]; then
  mkdir -p "$(dirname "$suite")"
  exec 9>"$suite.lock"
  flock 9
fi
if [ ! -f "$suite/suite.json" ]; then
  rm -rf "$suite".?????? # of runs that were killed
  work=$(mktemp -d "$suite.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  if ! { python3 -m venv "$work/venv" && timeout 300 "$work/venv/bin/pip" -q --disable-pip-version-check install "onnx==$version"; } >"$work/log" 2>&1; then
    echo "skipped: the PyPI package onnx $version cannot be had here: $(tail -1 "$work/log")"
    exit 77
  fi
  "$work/venv/bin/python" -W ignore "$here/generate_suite.py" "$work/cases" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  rm -rf "$suite"
  mv "$work/cases" "$suite"
fi
if [ "${1:-}" = --path ]; then
  echo "$suite"
  exit
fi
# The peer's count, by the same reasons: peers.py (./dev test --peers onnx-suite) counts it anew.
echo "for comparison, ONNX Runtime 1.31: node 1353 of 1829 (74 %; 283 models too new for it, 80 types that numpy cannot hand over, 70 not implemented,"
echo "22 wrong results, 21 others), pytorch-converted 59 of 82, pytorch-operator 24 of 35, simple 15 of 17"
exec "$tool" "$suite" --config "$config" --list "$here/unsupported.txt" "$@"
