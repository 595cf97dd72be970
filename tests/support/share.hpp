// SPDX-License-Identifier: Apache-2.0
// How much of a sweep a test runs under a sanitizer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <string_view>

namespace tessera::test {

// Of `full` random graphs, schedules or mutants: all; a tenth under the sanitizers of memory, and a twentieth under that of
// threads, which take many times as long. What goes wrong with memory or threads shows in the first programs of a kind as in
// the last.
inline size_t share_of(size_t full) {
  const char* const sanitizer = std::getenv("TESSERA_SANITIZE");
  if (!sanitizer || !*sanitizer) return full;
  return std::max<size_t>(full / (std::string_view(sanitizer) == "thread" ? 20 : 10), 1);
}

}  // namespace tessera::test
