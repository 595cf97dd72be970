// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: runs a kernel one point at a time on host memory. It defines what every schedule and dialect must
// compute, bit for bit (but for `dot`, whose order is free). Slow; meant for tests.
#pragma once

#include <span>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

// The order in which a loop of `count` points is reduced.
//
//  count <= chunk: lane j of L takes points j, j + L, j + 2L, .. in turn, starting from the identity; then lanes j and j + L/2
//  are combined for j < L/2, and so on by halves. L is long_lanes from long_from points on, else short_lanes. more: every
//  `chunk` points are reduced so; the result of chunk c goes to lane c mod fold_lanes of a second level (the first of a lane is
//  taken as it is), which is combined by halves too.
//
// A backend may choose other numbers; all its kernels then use them. max and min take the second operand of equals: max(a, b)
// is a where a is NaN or a > b, else b.
struct ReduceOrder {
  int64_t short_lanes = 8, long_lanes = 32, long_from = 128, chunk = 4096, fold_lanes = 8;
};

// `buffers`: one pointer per buffer, dense. Returns the faults raised (kFault.., or-ed), 0 for none. Throws sdk::Error TSR-K030
// when an index is outside its buffer: a bug of what made the kernel.
uint32_t interpret(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols,
                   const ReduceOrder& order = {});

// One function on bits of its parameter types.
uint64_t interpret(const Function& f, std::span<const uint64_t> args);

}  // namespace tessera::kit
