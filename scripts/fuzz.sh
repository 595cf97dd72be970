#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every libFuzzer target.  usage: scripts/fuzz.sh [TOTAL_SECONDS [SECONDS_PER_TARGET_AT_LEAST]]
# Findings (crash-*, leak-*, timeout-*) are kept in build/fuzz/findings/NAME and make the run fail.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
for part in common setup build; do . "scripts/$part.sh"; done
total=${1:-300} least=${2:-0}
setup build fuzz
build_preset fuzz fuzzers

mapfile -t targets < <(find build/fuzz/bin -name '*_fuzz' -type f -perm -u+x | sort)
[ ${#targets[@]} != 0 ] || die "no fuzz target was built"
each=$((total / ${#targets[@]}))
[ "$each" -ge "$least" ] || each=$least
say "${#targets[@]} targets, $(duration "$each") each, $(nproc) at a time"

one() { # target
  local name corpus work=build/fuzz/work findings
  name=$(basename "$1")
  corpus=tests/fuzz/${name%_fuzz}_corpus
  findings=build/fuzz/findings/$name/
  mkdir -p "$work/$name" "$findings"
  local seeds=()
  [ ! -d "$corpus" ] || seeds=("$corpus")
  [ "$name" != onnx_fuzz ] || seeds+=(tests/onnx/fixtures)
  if "$1" -max_total_time="$each" -timeout=25 -rss_limit_mb=3000 -print_final_stats=1 -artifact_prefix="$findings" \
    "$work/$name" "${seeds[@]}" >"$work/$name.log" 2>&1; then
    echo "clean  $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$name.log") runs in $each s"
  else
    echo "FOUND  $name: see $findings and $work/$name.log"
    return 1
  fi
}
export -f one
export each
printf '%s\0' "${targets[@]}" | xargs -0 -n 1 -P "$(nproc)" bash -c 'one "$0"'
