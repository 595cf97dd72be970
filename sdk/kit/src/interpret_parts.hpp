// SPDX-License-Identifier: Apache-2.0
// What the interpreters of kernels and of programs share: single instructions, and reductions step by step. A value is the bits
// of its type, zero-extended.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

// A pure instruction; `operand` is the type of its first operand.
uint64_t apply(const Inst& x, Type operand, const uint64_t* args);

struct State {            // of a reduction
  uint64_t a = 0, b = 0;  // first and second result
  int64_t n = 0;          // points taken
};
struct Reducer {
  ReduceKind kind;
  Type type;  // of the operand
  State identity() const;
  void take(State& s, uint64_t x, int64_t point) const;
  State combine(const State& x, const State& y) const;
};

// Combines the states of a loop's points, which are in the loop's row-major order.
using FamilyOrder = std::function<State(const Reducer&, std::span<const State> points, bool across)>;
uint32_t interpret_in(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols,
                      const FamilyOrder& order);

}  // namespace tessera::kit
