// SPDX-License-Identifier: Apache-2.0
// Random numbers of a node: the attribute `seed`, or the node's number among those that draw where it has none, is the key, so
// that every run gives the same numbers; in a loop the counter follows from the turn. They are not those of another runtime.
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

V random_state(Op& op);                                        // u64[2]
V random_uniform(Op& op, const Dims& shape, tsr_dtype dtype);  // [0, 1)
V random_normal(Op& op, const Dims& shape, tsr_dtype dtype);   // mean 0, deviation 1

}  // namespace tessera::onnx
