#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# usage: python=$(scripts/peers.sh PACKAGE...)
# The Python of the peers' virtual environment, with these packages from PyPI in it
# One environment serves all comparisons, for PyTorch alone takes 5 GB: build/peers, or the one that TESSERA_PEERS names.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
. "$root/scripts/common.sh"
venv=${TESSERA_PEERS:-$root/build/peers}
python=$venv/bin/python
[ -x "$python" ] || python3 -m venv "$venv" >&2 || die "no virtual environment can be made in $venv" "apt-get install python3-venv"
missing=()
for package in "$@"; do
  "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)" || missing+=("$package")
done
if [ ${#missing[@]} != 0 ]; then
  say "installing ${missing[*]} into $venv (the first time this can be 5 GB)"
  "$python" -m pip install --quiet --disable-pip-version-check "${missing[@]}" >&2 ||
    die "pip could not install ${missing[*]}" "TESSERA_PEERS=DIR names a virtual environment that has them"
fi
printf '%s\n' "$python"
