// SPDX-License-Identifier: Apache-2.0
// Running the pass plugins, and the graphs before and after them on the reference backend.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "context/context.hpp"
#include "ir/graph.hpp"
#include "memory/tensor.hpp"
#include "pass/pass_manager.hpp"

namespace tessera::test {

// The passes that have a folder here, by name.
std::vector<std::string> pass_names();
// The standard op set, those passes and the reference backend; made on first use.
const core::Context& pass_context();

// With the whole-graph verifier after each pass. Throws what the passes throw.
core::PassReport run_pipeline(core::Graph& graph, const std::string& pipeline);

// A value per symbol: the least of its range that is at least 3, or its maximum.
std::vector<int64_t> small_symbols(const core::Graph& graph);

struct Outcome {
  std::vector<core::TensorRef> outputs;
  std::string error;  // "TSR-R010 ...", or "" when it ran
};
// Over random inputs, which are the same for the same seed and the same input types. Floats include zeros of both signs,
// infinities, NaN and subnormals; integers are small mostly. `symbols`: a value per symbol of the graph, in table order.
Outcome run_on_reference(const core::Graph& graph, const std::vector<int64_t>& symbols, uint64_t seed);

// "" when every bit agrees, NaNs of any payload being equal; else the first difference.
std::string bit_difference(const Outcome& a, const Outcome& b);

}  // namespace tessera::test
