// SPDX-License-Identifier: Apache-2.0
// Whether a graph computes the same when the tensors of a dynamic size are padded up to a bucket.
//
// What is proved of every tensor, op by op: along each dimension whose size depends on the symbol, the padded tensor *begins*
// with the elements of the original one. What stands behind them is anything at all. So an op may be done on the padded tensor
// when every element at the beginning of its result depends on beginnings of its operands only. Where an op combines elements
// along a padded dimension, what stands behind the beginning is first replaced by the op's neutral element. Inputs begin so
// once they are padded, and slices of the results are the original ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/plugin.hpp>

#include "sizes.hpp"

namespace tessera::bucket {

// What an operand has behind its beginning while an op reads it.
enum class Fill : uint8_t { kAnything, kZero, kMinusZero, kOne, kLowest, kHighest };

struct Step {  // a node that depends on the symbol
  enum Kind : uint8_t {
    kPadded,  // the same op on padded operands, sizes among its attributes padded as well
    kExact,   // the same op, attributes as they are: it reads beginnings only, and its results are the original ones
    kMean     // of elements along a padded dimension: their sum, divided by the original number
  } kind = kPadded;
  sdk::Node node;
  std::vector<Fill> fills;  // by operand; empty: anything
};

struct Proof {
  std::vector<Step> steps;  // in program order
  std::string refused;      // why there is none: "op 'flip' at model.cpp:12: ..."; empty: it is proved
};

// Reads the graph only. `reorder_sums`: sums of floats may run over padded dimensions.
Proof prove(sdk::Graph g, Sizes& sizes, bool reorder_sums);

}  // namespace tessera::bucket
