# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154,SC2016
# Configuring, building and running tests by preset. Everything that is not a result goes to stderr.

# configure_preset PRESET [CMAKE ARGUMENT...]
configure_preset() {
  local preset=$1 log=build/logs/configure-$1.log
  shift
  mkdir -p build/logs
  say "configuring build/$preset"
  if ! cmake --preset "$preset" "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    die "configuring failed; see the message above (kept in $log)"
  fi
}

is_configured() { [ -f "build/$1/build.ninja" ]; }

run_ninja() {
  if [ -t 2 ]; then # ninja's own one-line progress
    ninja "$@" >&2 </dev/null
  else
    ninja "$@" 2>&1 </dev/null | thin_progress
  fi
}

# build_preset PRESET [TARGET...]
build_preset() {
  local preset=$1 start=$SECONDS line
  shift
  is_configured "$preset" || configure_preset "$preset"
  say "building build/$preset with $(jobs) jobs"
  NINJA_STATUS='[%f/%t %es] ' run_ninja -C "build/$preset" -j "$(jobs)" "$@" ||
    die "the build failed; the first error is above" "To try again: ./dev build --preset $preset"
  note "built in $(duration $((SECONDS - start)))"
  if [ -s "build/$preset/left_out.txt" ]; then
    while IFS= read -r line; do note "$line"; done <"build/$preset/left_out.txt"
  fi
}

# The release build for commands that only run programs: a fresh tree leaves the tests out (and so does not need Catch2).
build_for_running() {
  is_configured release || configure_preset release -DTESSERA_BUILD_TESTS=OFF
  build_preset release
}

build_for_testing() { # preset
  if ! is_configured "$1" || grep -q '^TESSERA_BUILD_TESTS:BOOL=OFF' "build/$1/CMakeCache.txt"; then
    configure_preset "$1" -DTESSERA_BUILD_TESTS=ON
  fi
  build_preset "$1"
}

# run_tests PRESET [CTEST ARGUMENT...]: ctest's lines, its summary last.
run_tests() {
  local preset=$1 prefix=()
  shift
  # GCC 12's thread sanitizer gives up where the kernel randomises more address bits than it knows.
  if [ "$preset" = tsan ] && setarch -R true 2>/dev/null; then prefix=(setarch -R); fi
  "${prefix[@]}" ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j "$(nproc)" "$@" </dev/null
}

# binary NAME [HINT]: path of a program of the release build.
binary() {
  [ -x "build/release/bin/$1" ] || die "build/release/bin/$1 does not exist" "${2:-It is built by: ./dev build}"
  echo "build/release/bin/$1"
}
