#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The core and the SDK's static libraries need neither LLVM nor CUDA nor HIP, directly or through another library.
# usage: boundary_libraries.sh LIB_DIR
set -euo pipefail
libdir=$1
forbidden='libLLVM|libclang|libcuda|libcudart|libnvrtc|libnvidia|libcublas|libcudnn|libamdhip|libhiprtc|libhsa|librocm'
library=$libdir/libtessera.so
if [ ! -e "$library" ]; then
  echo "FAIL $library does not exist"
  exit 1
fi
needed=$(ldd "$library")
echo "$needed"
if found=$(grep -E "$forbidden" <<<"$needed"); then
  echo "FAIL libtessera.so must not need: $found"
  exit 1
fi
# Static kits: an undefined reference into one of those libraries would surface in every plugin.
for kit in "$libdir"/libtessera_sdk_*.a; do
  [ -e "$kit" ] || continue
  if found=$(nm -u "$kit" 2>/dev/null | grep -E ' (LLVM|cu[A-Z]|cuda|nvrtc|hip[A-Z]|hiprtc)' | head -3); then
    echo "FAIL $(basename "$kit") refers to: $found"
    exit 1
  fi
  echo "ok   $(basename "$kit")"
done
