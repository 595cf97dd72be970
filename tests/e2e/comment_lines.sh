#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Comments end at 128 columns, as code does, which clang-format breaks; it leaves comments alone.
# usage: comment_lines.sh SOURCE_DIR
set -euo pipefail
cd "$1"
find backends benchmarks cmake configs core dev examples frontends plugins scripts sdk tests tools CMakeLists.txt \
  \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' -o -name '*.py' -o -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt \
  -o -name '*.toml' -o -name dev \) -type f -print0 |
  xargs -0 perl -CSD -ne '
    chomp;
    if (length > 128 && m{^\s*(//|/?\*|#)}) {
      print "FAIL $ARGV:$.: a comment of ", length, " columns, at most 128 are allowed\n";
      $bad = 1;
    }
    close ARGV if eof;
    END { exit($bad // 0) }'
echo "ok: comments end at 128 columns"
