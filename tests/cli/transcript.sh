#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the command lines of a transcript (`$ ...`) one by one in a fresh directory with the fixtures of files/, and compares
# what they print and how they exit with what stands below each. TESSERA_BLESS=1 rewrites the transcript.
#
#   # a comment
#   $ tessera frobnicate
#   error[TSR-U001] unknown command 'frobnicate'
#   [2]
#
# stdout and stderr come as one; `[status]` ends every command that does not exit with 0. Paths of this machine become names:
# BUILD,
# SOURCE, WORK.  usage: transcript.sh FILE WORK_DIR
set -uo pipefail
transcript=$1 work=$2
build=$TESSERA_BUILD_DIR source=$TESSERA_SOURCE_DIR
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$work" && mkdir -p "$work" && cp -r "$here/files/." "$work" && cd "$work" || exit 1
unset TESSERA_LOGS TESSERA_TRACE TESSERA_CONFIG TESSERA_CACHE_DIR TESSERA_GRAPH_CACHE
export PATH="$build/bin:$PATH" LC_ALL=C.UTF-8 NPZ="$source/tests/golden/npz" OMP_NUM_THREADS=2
bless=${TESSERA_BLESS:-}
unset TESSERA_BLESS # the commands under test know it too

names() { sed -e "s|$work|WORK|g; s|$build|BUILD|g; s|$source|SOURCE|g"; }

actual=$work/.actual
: >"$actual"
count=0
while IFS= read -r line; do
  case $line in
    '$ '*)
      [ "$count" = 0 ] || echo >>"$actual"
      count=$((count + 1))
      printf '%s\n' "$line" >>"$actual"
      output=$(bash -o pipefail -c "${line#\$ }" 2>&1 </dev/null)
      status=$?
      [ -z "$output" ] || printf '%s\n' "$output" | names >>"$actual"
      [ "$status" = 0 ] || printf '[%s]\n' "$status" >>"$actual"
      ;;
    '# '*) # kept where it stands, between commands
      [ "$count" = 0 ] || echo >>"$actual"
      count=0
      printf '%s\n' "$line" >>"$actual"
      ;;
  esac
done <"$transcript"

if [ -n "$bless" ]; then
  cmp -s "$actual" "$transcript" || { cp "$actual" "$transcript" && echo "rewrote $transcript"; }
  exit 0
fi
grep -q '^\$ ' "$transcript" || { echo "FAIL $transcript holds no command"; exit 1; }
diff -u --label "expected: $transcript" --label "found" "$transcript" "$actual"
