#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No identifier is a word that this project once invented where the field has one. Comments and strings are free to use them.
# usage: field_terms.sh SOURCE_DIR
set -euo pipefail
cd "$1"
find backends benchmarks core examples frontends plugins sdk tests tools \( -name '*.cpp' -o -name '*.hpp' -o -name '*.h' \) -print0 |
  xargs -0 perl -0777 -ne '
    s{("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/}{ my $all = $&; $all =~ s/[^\n]//g; $all }gse;
    my $line = 0;
    for (split /\n/) {
      $line++;
      if (/\b(Home|Exec|Lease|Turn|Without|Draft|Payoff|Ahead)\b/) {
        print "FAIL $ARGV:$line: the identifier $1 is not a term of the field\n";
        $bad = 1;
      }
    }
    END { exit($bad // 0) }'
echo "ok: identifiers use the terms of the field"
