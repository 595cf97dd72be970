// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>

#include "ir/graph.hpp"

namespace tessera::bench {

// A graph of exactly `nodes` nodes of the standard op set, the same for the same seed: the blocks of a transformer as an
// exporter writes them. About a third of it is for the passes: equal subexpressions (also with swapped operands), identities,
// chains of transposes, reshapes and casts, repeated constants, and dead chains. One value is read by a node of every block, so
// that lists of uses grow with the graph.
std::unique_ptr<core::Graph> transformer_like(const core::OpRegistry& ops, size_t nodes, uint64_t seed);

}  // namespace tessera::bench
