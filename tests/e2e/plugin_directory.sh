#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The plugin directory holds one library and one manifest per first-party plugin and nothing else; every manifest names its
# library and states its hash.  usage: plugin_directory.sh PLUGIN_DIR
set -euo pipefail
cd "$1"
bad=0
fail() { echo "FAIL $*"; bad=1; }

field() { sed -nE "s/^$2 = \"(.*)\"$/\1/p" "$1" | head -1; }

shopt -s nullglob dotglob
for entry in *; do
  case $entry in
    tessera.*.so) [ -f "${entry%.so}.toml" ] || fail "$entry has no manifest beside it" ;;
    tessera.*.toml)
      library=$(field "$entry" library)
      if [ "$library" != "${entry%.toml}.so" ] || [ ! -f "$library" ]; then
        fail "$entry names the library '$library'; expected ${entry%.toml}.so"
        continue
      fi
      expected="sha256:$(sha256sum "$library" | cut -d' ' -f1)"
      [ "$(field "$entry" hash)" = "$expected" ] || fail "$entry: hash is $(field "$entry" hash); $library has $expected"
      [ "$(field "$entry" id)" = "${entry%.toml}" ] || fail "$entry: id is '$(field "$entry" id)'"
      echo "ok   ${entry%.toml} $(field "$entry" version)" ;;
    *) fail "$1/$entry is not a first-party plugin; give its tessera_add_plugin() a DESTINATION" ;;
  esac
done
exit $bad
