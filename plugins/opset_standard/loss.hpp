// SPDX-License-Identifier: Apache-2.0
// What the decomposition and the gradient of cross_entropy share.
#pragma once

#include "build.hpp"

namespace tessera::opset {

struct Targets {
  explicit Targets(Build& b) : logits(b.wide(b.operand(0))) {
    const Var target = b.operand(1);
    ignored = target == b.integer_scalar(b.integer("ignore_index"), target.dtype());
    index = select(ignored, b.integer_scalar(0, target.dtype()), target);
    if (b.has(2)) class_weight = b.wide(b.operand(2));
    const Var weight = class_weight ? class_weight.gather(index, 0) : b.full(1, logits.dtype(), target.sizes());
    weight_of_target = select(ignored, 0, weight);
  }
  Var logits;            // [N, C, *S] in the compute dtype
  Var ignored;           // bool [N, *S]
  Var index;             // [N, *S], 0 where ignored
  Var class_weight;      // [C] or nothing
  Var weight_of_target;  // [N, *S], 0 where ignored

  Var weight_along_classes() const {  // [C, 1, ..]
    DimVector shape(static_cast<size_t>(logits.rank() - 1), 1);
    shape[0] = logits.size(1);
    return class_weight.reshape(shape);
  }
};

}  // namespace tessera::opset
