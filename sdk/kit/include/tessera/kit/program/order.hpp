// SPDX-License-Identifier: Apache-2.0
// The order in which the SIMT family reduces: a function of the number of elements, their dtype and the direction alone, chosen
// so that any number of threads, warps and blocks can share the work without a change of bits. `combine(a, b)` has the earlier
// operand on the left, and `identity` is the value that every running value starts from and that stands for elements beyond the
// end.
//
// Along rows (the last dimension is reduced): elements come in vectors of 8 and rows of 32 vectors. A chunk is `steps` such
// rows; in it thread t of 32 takes vector t of each row in turn. A vector is combined by halves (element j with j + 4, then 2,
// then 1) and goes to the thread's one running value (`by_halves`), or each of its elements goes to a running value of its own,
// and those are combined by halves at the end of the chunk. Threads are combined by halves: t with t + 16, then 8, 4, 2, 1. The
// results of chunks are reduced by the same rule until one is left. `interleaved`: there are 8 chunks whatever the count, and
// rows go to them by turns.
//
// Across rows (`loop across`): elements come in runs of run_of(count), each reduced in turn, and blocks of `fan` runs, which
// are combined by halves (j with j + fan / 2, and so on). The results of blocks are reduced by the same rule until one is left.
// `interleaved_runs`: the elements of a block go to its runs by turns. Runs are `run` long where there are many rows, or so few
// that they are one block. In between they are shorter, so that there are 256 of them as far as that goes: a run belongs to one
// block of threads where gradients of a norm are summed, and fewer blocks than that leave most of a large device idle.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

struct SimtOrder {
  static constexpr int64_t kVector = 8, kThreads = 32, kRow = kVector * kThreads;
  int64_t steps = 2;
  bool by_halves = true;
  bool interleaved = false;
  int64_t run = 64, fan = 8;
  bool interleaved_runs = true;

  int64_t chunk() const { return kRow * steps; }
  static constexpr int64_t kRuns = 256;
  int64_t shortest_run() const { return run / 8 < 8 ? std::min<int64_t>(run, 8) : run / 8; }
  int64_t run_of(int64_t count) const {
    int64_t length = count <= run * fan ? run : shortest_run();
    while (length < run && count >= 2 * length * kRuns) length *= 2;
    return length;
  }
};

// Runs a kernel as the family does, one point at a time: the judge of every schedule, bit for bit. As interpret() otherwise.
uint32_t interpret(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols, const SimtOrder& order);

}  // namespace tessera::kit
