#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The ABI header is C11 and C++20, without a warning, on its own.  usage: abi_header.sh INCLUDE_DIR CXX
set -euo pipefail
include=$1 cxx=$2
header=$include/tessera/abi.h
strict=(-Wall -Wextra -pedantic -Werror -fsyntax-only -I "$include")
echo "C11:   gcc -std=c11 ${strict[*]} -x c $header"
gcc -std=c11 "${strict[@]}" -x c "$header"
echo "C++20: $cxx -std=c++20 ${strict[*]} -x c++ $header"
# As a file that includes it: a header given as the main file makes `#pragma once` and the like warn.
printf '#include <tessera/abi.h>\nint main() { return 0; }\n' | "$cxx" -std=c++20 "${strict[@]}" -x c++ -
for other in "$include"/tessera/*.h; do
  [ "$other" = "$header" ] || gcc -std=c11 "${strict[@]}" -x c "$other"
done
