// SPDX-License-Identifier: Apache-2.0
// What micro-kernels ask the nearest cache for. Included by the files that are compiled per instruction set.
#pragma once

#include "../tables.hpp"

namespace cpu {
namespace {

// The steps of K between two calls of fetch, which takes as long as some of them.
[[gnu::always_inline]] inline int64_t stretch_of(const Prefetch& prefetch, int64_t k, int height) {
  constexpr int64_t kLeast = 6;
  if ((prefetch.lines[0].step | prefetch.lines[1].step) == 0) return k;
  const int64_t n = (k + height - 1) / height;
  return n < kLeast ? kLeast : n;
}

// kWrite: for oneself alone. A line that another core wrote last would be asked for again by the store, otherwise.
template <bool kWrite>
[[gnu::always_inline]] inline void fetch(Prefetch::Lines& lines) {
  __builtin_prefetch(lines.at, kWrite);
  __builtin_prefetch(lines.at + lines.beside, kWrite);
  lines.at += lines.step;
}

}  // namespace
}  // namespace cpu
