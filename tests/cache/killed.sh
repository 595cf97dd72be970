#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills processes that write to one cache at random moments, two at a time, and checks that no damaged entry is ever served: not
# to the writers, which end with an error when they get one, and not to a reader after each kill.
# usage: killed.sh CACHE_STRESS FOLDER KILLS
set -uo pipefail
stress=$1 folder=$2 kills=$3
rm -rf "$folder" && mkdir -p "$folder" && chmod 700 "$folder"
RANDOM=1
# The shell reports every killed job there; so do the writers what they found.
exec 2>"$folder.said"
fail() {
  echo "FAIL: $*"
  grep -v ' Killed ' "$folder.said"
  exit 1
}
entries=0
ready=$folder.ready
for ((i = 0; i < kills; i += 2)); do
  : >"$ready"
  "$stress" write "$folder" "$i" >>"$ready" & a=$!
  "$stress" write "$folder" "$((i + 1))" >>"$ready" & b=$!
  # Both are writing before the moment is drawn.
  until [ "$(wc -l <"$ready")" = 2 ] || ! kill -0 "$a" 2>/dev/null || ! kill -0 "$b" 2>/dev/null; do sleep 0.01; done
  sleep "0.0$((RANDOM % 90 + 10))"
  kill -9 "$a" 2>/dev/null; sleep "0.00$((RANDOM % 9))"; kill -9 "$b" 2>/dev/null
  for pid in "$a" "$b"; do
    wait "$pid" 2>/dev/null
    status=$?
    [ "$status" = 137 ] || fail "a writer ended by itself, status $status"
  done
  entries=$("$stress" check "$folder" 0) || fail "after $((i + 2)) kills"
  [ $(((i + 2) % 100)) != 0 ] || echo "$((i + 2)) of $kills kills"
done
[ "$entries" -gt 0 ] || fail "nothing was ever written"
echo "$kills kills, $entries sound entries, $(find "$folder" -path '*/new/*' | wc -l) leftovers"
