// SPDX-License-Identifier: Apache-2.0
// Equality of graphs and of attribute values.
#pragma once

#include <functional>
#include <string>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

// Structural equality: everything the text form shows (names, order, types, symbols, assumptions, locations, constants bit
// for bit), and nothing else (ids, authors, unused expressions).
bool equal(const Graph& a, const Graph& b);
// The first difference in words, "" when there is none.
std::string difference(const Graph& a, const Graph& b);

// Whether both compute the same from the same inputs: as equal, but names, locations, hints of symbols and the wording of
// assumptions do not count. Host functions (attributes named `callback`) count as what they are, unless they are said to be the
// same.
bool same_computation(const Graph& a, const Graph& b, bool same_callbacks = false);
// Equal for graphs of the same computation.
uint64_t computation_hash(const Graph& graph);

// Kind and value; floats and constants bit for bit. Sizes are equal when `same_dim` says so; without it, when their handles
// are.
bool same_attr(const tsr_attr& a, const tsr_attr& b);
bool same_attr(const tsr_attr& a, const tsr_attr& b, const std::function<bool(tsr_dim, tsr_dim)>& same_dim);

}  // namespace tessera::core
