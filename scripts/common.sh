# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# Shared by ./dev and the scripts: messages, progress, time. Messages go to stderr, so that stdout carries results only.

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
  bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' plain=$'\e[0m'
else
  bold= red= green= yellow= plain=
fi

say() { printf '%s\n' "${bold}==>${plain} $*" >&2; }
note() { printf '%s\n' "    $*" >&2; }
warn() { printf '%s\n' "${yellow}warning:${plain} $*" >&2; }
die() { # message, hint lines...
  printf '%s\n' "${red}error:${plain} $1" >&2
  shift
  [ $# = 0 ] || printf '       %s\n' "$@" >&2
  exit 2
}

have() { command -v "$1" >/dev/null 2>&1; }

duration() { # seconds -> "3 min 12 s"
  if [ "$1" -ge 60 ]; then echo "$(($1 / 60)) min $(($1 % 60)) s"; else echo "$1 s"; fi
}

# Parallel jobs: one per core, but a C++ translation unit may take 1.5 GiB.
jobs() {
  local cores memory
  cores=$(nproc)
  memory=$(awk '/^MemTotal/ {print int($2 / 1572864)}' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  echo $((cores < memory ? cores : memory))
}

# Thins ninja's chatter where there is no terminal: a progress line every 10 %, all other lines as they are.
thin_progress() {
  local line next=0 percent
  while IFS= read -r line; do
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\  ]]; then
      percent=$((BASH_REMATCH[1] * 100 / BASH_REMATCH[2]))
      if [ "$percent" -ge "$next" ]; then
        printf '%s\n' "$line" >&2
        next=$((percent / 10 * 10 + 10))
      fi
    else
      printf '%s\n' "$line" >&2
    fi
  done
}

# Runs a long command with its output in a log; says once in a while that it lives and what it last wrote.
# with_log LOG COMMAND...
with_log() {
  local log=$1 ticker status=0 start=$SECONDS last
  shift
  mkdir -p "$(dirname "$log")"
  : >"$log"
  (
    trap 'kill $! 2>/dev/null; exit 0' TERM
    while sleep 20 >/dev/null 2>&1 & wait $!; do
      last=$(tail -n 1 "$log" | tr -d '\r' | cut -c1-100)
      note "$(duration $((SECONDS - start)))${last:+: $last}"
    done
  ) &
  ticker=$!
  "$@" >>"$log" 2>&1 </dev/null || status=$?
  kill "$ticker" 2>/dev/null || true
  wait "$ticker" 2>/dev/null || true
  return "$status"
}
