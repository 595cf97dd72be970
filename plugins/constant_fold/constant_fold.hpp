// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

struct FoldLimits {
  int64_t max_bytes = 1 << 20;  // of one result: folding a large `full` or `iota` only makes the graph heavy
};

// Computes pure nodes whose operands are all constants, on the fallback backend, and replaces them by constants. A node whose
// evaluation fails (an integer division by zero) is left to fail at run time, where the message has its inputs.
// Later passes may assume: a pure, static node of at most max_bytes has an operand that is not constant.
bool fold_constants(sdk::Graph g, FoldLimits limits);

}  // namespace tessera::passes
