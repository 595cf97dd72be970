// SPDX-License-Identifier: Apache-2.0
// What the shapes of a region's inputs must satisfy. One list for both who rely on it: the plan, which checks it at every call
// that nothing else has checked, and the guards of compiled functions, which turn a call that violates it into a miss.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/abi.h"

namespace tessera::core {

class Graph;

struct InputFacts {
  // One dimension of an input, in the order in which they are to be looked at: a fact relies on symbols of earlier ones only.
  struct Dim {
    enum Kind : uint8_t {
      kNumber,  // the size is `size`
      kSymbol,  // gives `symbol` its value
      kSolve,   // gives `symbol` its value: `size` is an expression in which it is the only unknown
      kCheck,   // the size is the expression `size` over symbols that have values, or that nothing determines
      kStride,  // the stride gives `symbol` its value; only of symbols that assumptions mention and no size determines
    };
    uint32_t input, dim;
    Kind kind;
    uint32_t symbol;
    tsr_dim size;
  };
  std::vector<Dim> dims;
  std::vector<uint32_t> symbols;    // that inputs determine: their ranges hold
  std::vector<uint32_t> relations;  // assumptions about symbols that are known before the region runs, by number
};

// `known`: symbols that have values before the inputs are looked at, one flag per symbol, or empty. Relations are those of the
// body: a nested region has none of its own.
InputFacts input_facts(const Graph& graph, tsr_id region, const std::vector<uint8_t>& known);

}  // namespace tessera::core
