// SPDX-License-Identifier: Apache-2.0
// Between which numbers a value lies, as far as its instruction tells. The builder asks this to leave out what cannot happen:
// limits of a cast that a clamp has kept already, NaN of what was an integer, an index outside a table that holds every byte.
#pragma once

#include <limits>
#include <optional>
#include <span>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

// Every number between `lo` and `hi`, both of them included, and NaN if `nan`. Integers beyond 2^53 are not followed: their
// range has no ends.
struct Range {
  double lo = -std::numeric_limits<double>::infinity();
  double hi = std::numeric_limits<double>::infinity();
  bool nan = true;
};

// The range of the value of `x`; of[v] is that of value v, and insts[v] its instruction.
Range range_of(const Inst& x, std::span<const Inst> insts, std::span<const Range> of);

// What the comparison gives for every number of both ranges; none: that depends. `same`: both sides are one value.
std::optional<bool> decided(Op compare, const Range& a, const Range& b, bool same);

}  // namespace tessera::kit
