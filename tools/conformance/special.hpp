// SPDX-License-Identifier: Apache-2.0
// The values that formulas forget, for elementwise ops: zeros of both signs, infinities, NaN, subnormal and largest numbers,
// and the ends of integer dtypes. Here a zero has a sign: -0 is not 0. Of several operands every combination is tried. Operands
// are long enough for whole vectors and a tail.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cases.hpp"

namespace tessera::conformance {

// One case for each of these ops, its attributes and the dtypes of its operands, of those in `all`. The shapes are its own.
std::vector<Case> special_cases(const std::vector<Case>& all, const std::set<std::string>& elementwise);

// The special values of operand `index`, each `inner` times in a row, over and over, as `n` elements; and how many there are.
std::vector<char> special_values(const Case&, size_t index, int64_t inner, int64_t n);
int64_t special_count(const Case&, size_t index);

// "" or the first zero with the wrong sign, of dense tensors of one dimension.
std::string zeros_differ(const tsr_tensor& got, const tsr_tensor& want);

}  // namespace tessera::conformance
