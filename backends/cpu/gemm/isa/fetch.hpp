// SPDX-License-Identifier: Apache-2.0
// What micro-kernels ask the nearest cache for. Included by the files that are compiled per instruction set.
#pragma once

#include "../tables.hpp"

namespace cpu {
namespace {

[[gnu::always_inline]] inline void fetch(Ahead::Lines& lines) {
  __builtin_prefetch(lines.at);
  __builtin_prefetch(lines.at + lines.beside);
  lines.at += lines.step;
}

}  // namespace
}  // namespace cpu
