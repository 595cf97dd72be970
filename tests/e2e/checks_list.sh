#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every row of the acceptance checks has a class and a function, every such function a row: a stray quote in a row ends the
# list.
# usage: checks_list.sh SOURCE_DIR
set -euo pipefail
cd "$1"
# shellcheck source=/dev/null
source scripts/checks.sh
bad=0 rows=0
while IFS='|' read -r name class text; do
  [ -n "$name" ] || continue
  rows=$((rows + 1))
  case $class in fast | slow | time | root | hours | peers) ;; *) echo "FAIL $name has no class but '$class'" && bad=1 ;; esac
  [ -n "$text" ] || { echo "FAIL $name says nothing of itself" && bad=1; }
  declare -F "check_${name//-/_}" >/dev/null || { echo "FAIL $name has no function" && bad=1; }
done <<<"$checks"
while read -r function; do
  name=${function#check_}
  grep -q "^${name//_/-}|" <<<"$checks" || { echo "FAIL $function has no row" && bad=1; }
done < <(declare -F | sed -n 's/^declare -f \(check_.*\)/\1/p')
echo "$rows checks"
exit "$bad"
