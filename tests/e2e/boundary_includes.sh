#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No plugin includes a header of the core: by its text, and by what the compiler really opened (ninja's dependency log).
# The SDK includes none either. A language client (frontends/*/client, frontends/cpp/{src,include}) stands on the embedding
# API, which is core/include; the core's private headers (core/src) are closed to it too.
# usage: boundary_includes.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1 build=$2 bad=0
cd "$source"

list_includes() { # dirs... -> file:line:name
  local dirs=() d
  for d in "$@"; do [ ! -d "$d" ] || dirs+=("$d"); done
  [ ${#dirs[@]} = 0 ] || grep -rnHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+[>"]' --include='*.h' --include='*.hpp' \
    --include='*.c' --include='*.cpp' --include='*.cu' --include='*.inc' "${dirs[@]}" \
    | sed -E 's/[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]([^>"]+)[>"]/\1/' || true
}

# Names under which a core header can be reached.
public=$(cd core/include 2>/dev/null && find . -name '*.h' -o -name '*.hpp' | sed 's|^\./||' | sort || true)
private=$(cd core/src 2>/dev/null && find . -name '*.h' -o -name '*.hpp' | sed 's|^\./||' | sort || true)

is_client() { [[ $1 == frontends/cpp/* || $1 == frontends/*/client/* ]]; }

while IFS=: read -r file line name; do
  [ -n "$file" ] || continue
  why=
  if [[ $name == *core/* ]]; then
    why="a path into core/"
  elif [[ $name == */* ]] && grep -qxF "$name" <<<"$private"; then
    why="a private header of the core"
  elif grep -qxF "$name" <<<"$public" && ! is_client "$file"; then
    why="a header of the embedding API"
  fi
  # A plugin may have a file of the same name beside its own sources, or mean the SDK's.
  beside=$(realpath -qm --relative-to=. "$(dirname "$file")/$name")
  if [ -n "$why" ] && [ -e "$beside" ] && [[ $beside != core/* ]]; then why=; fi
  if [ -n "$why" ] && { [[ $name == *..* ]] || [ ! -e "sdk/include/$name" ]; }; then
    echo "FAIL $file:$line includes $name, $why; a plugin may include the SDK's headers only"
    bad=1
  fi
done < <(list_includes plugins frontends backends sdk)

checked=0
if [ -f "$build/build.ninja" ] && command -v ninja >/dev/null; then
  # "object: #deps ..." starts an entry, indented lines are the files it was built from.
  report=$(ninja -C "$build" -t deps | awk -v core="$source/core/" '
    /^[^ ].*: #deps/ { object = $1; sub(/:$/, "", object)
      plugin = object ~ /^(plugins|frontends|backends|sdk)\//; client = object ~ /^frontends\/(cpp|[^\/]+\/client)\//
      if (plugin) n++ }
    /^ / && plugin { path = $1
      if (path !~ /^\//) path = ""; else if (index(path, core) != 1) path = ""
      relative = $1; while (sub(/^\.\.\//, "", relative)) inside = 1
      if (path == "" && inside && relative ~ /^core\//) path = relative
      inside = 0
      if (path != "" && !(client && path ~ /core\/include\//)) print "FAIL " object " was compiled with " path }
    END { print "objects " n + 0 }')
  checked=$(awk '/^objects/ {print $2}' <<<"$report")
  if grep '^FAIL' <<<"$report"; then bad=1; fi
fi
echo "looked at the sources under plugins frontends backends sdk and at $checked compiled objects"
exit $bad
