#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Line coverage of core/ by the test suite: build/coverage/summary.txt and build/coverage/index.html.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
for part in common setup build; do . "scripts/$part.sh"; done
build_for_testing coverage
find build/coverage -name '*.gcda' -delete
failed=
run_tests coverage || failed=1
say "reading the counters"
gcovr --root . --object-directory build/coverage --filter 'core/' --exclude-throw-branches --gcov-ignore-parse-errors \
  -j "$(nproc)" --print-summary --html build/coverage/index.html | tee build/coverage/summary.txt
[ -z "$failed" ] || die "tests failed: the figure counts what ran and says nothing about the suite" "They are named above; ./dev test runs them without counters."
