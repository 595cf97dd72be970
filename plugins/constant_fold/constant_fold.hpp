// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/plugin.hpp>

namespace tessera::passes {

struct FoldLimits {
  static constexpr int64_t kSmall = 4096;
  int64_t max_bytes = 1 << 20;  // of one result
};

// Computes pure nodes whose operands are all constants, on the fallback backend, and replaces them by constants. A node whose
// evaluation fails (an integer division by zero) is left to fail at run time, where the message has its inputs. Beyond 4 KiB, a
// result must not have more elements than the largest operand: folding a `full`, an `iota` or a broadcast would only make the
// graph heavy. It may have wider ones: weights that are kept narrow would else be widened by every call. Later passes may
// assume: a pure static node within these limits has an operand that is not constant, or failed when it was computed.
bool fold_constants(sdk::Graph g, FoldLimits limits);

}  // namespace tessera::passes
