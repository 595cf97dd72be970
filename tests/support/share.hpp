// SPDX-License-Identifier: Apache-2.0
// How much of a sweep a test runs under a sanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>

namespace tessera::test {

// Of `full` random graphs, schedules or mutants: all, and a fifth under a sanitizer. An interpreter that is instrumented takes
// about ten times as long, and what it does wrong with memory or threads shows in the first programs of a kind as in the last.
inline size_t share_of(size_t full) {
  const char* const sanitizer = std::getenv("TESSERA_SANITIZE");
  return sanitizer && *sanitizer ? std::max<size_t>(full / 5, 1) : full;
}

}  // namespace tessera::test
