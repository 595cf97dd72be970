// SPDX-License-Identifier: Apache-2.0
// What tests of random graphs ask of a graph, beside its outputs.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "ir/graph.hpp"

namespace tessera::test {

// By value: is it what exact arithmetic of exact operands gives? An op without a row in the table of tolerances is exact.
std::vector<uint8_t> exact_values(const core::Graph& g);

// Other sizes for which everything the graph says of its symbols holds, none of them above 1,000; false: none were found.
bool other_sizes(const core::Graph& g, std::vector<int64_t>& symbols, std::mt19937_64& random);

}  // namespace tessera::test
