// SPDX-License-Identifier: Apache-2.0
// Whether pieces of a graph are kernels, asked over and over: models repeat their layers, and a search lowers the same graph
// with small changes.
#pragma once

#include <string>
#include <unordered_map>

#include "tessera/kit/lower.hpp"

namespace tessera::kit {

// What lower() says of a piece, without its kernel.
struct Fit {
  std::string why;     // the reason of Unfit; empty: it is a kernel
  int calls = 0;       // calls of functions per element, over all loops
  size_t symbols = 0;  // Lowered::symbol_dims
};

// Equal pieces are lowered once: where all sizes are known, once in the process; else once for this object, which must then not
// outlive the graph, nor a change of what is known of its sizes. Throws what lower() throws, but for Unfit.
class FitCache {
 public:
  Fit of(const Piece& piece);

 private:
  std::unordered_map<std::string, Fit> of_graph_;
};

// All that lower() looks at in a piece, as bytes: pieces of equal keys are equal kernels, but for names. Empty where that
// cannot be told: of a constant too large to be worth comparing; and of sizes that are symbols, which mean the same in one
// graph alone, unless keys are compared `within_graph`.
std::string structure_key(const Piece& piece, bool within_graph = false);

// Calls of functions per element, over all loops: what is computed again in a second loop counts again.
int function_calls(const Kernel& k);

}  // namespace tessera::kit
