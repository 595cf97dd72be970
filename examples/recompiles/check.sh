#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: check.sh PROGRAM    runs it and compares every block that it prints with expected.txt (TESSERA_BLESS=1 rewrites that)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
found=$("$1" 2>&1 | grep -v '^tessera: note: optional plugin' | sed -E 's#[^ (]*examples/recompiles/##g')
if [ -n "${TESSERA_BLESS:-}" ]; then
  printf '%s\n' "$found" >"$here/expected.txt"
elif ! diff -u "$here/expected.txt" <(printf '%s\n' "$found"); then
  echo "examples/recompiles prints something else than expected.txt (TESSERA_BLESS=1 rewrites it)" >&2
  exit 1
fi
