// SPDX-License-Identifier: Apache-2.0
// Runs a tile function over tensors of any dtype and strides: broadcasting, conversion to the compute type and back, threads.
#pragma once

#include <atomic>

#include "build.hpp"

namespace eager {

struct TileOp {
  TileFn fn = nullptr;
  int num_inputs = 0;
  bool splat = false;      // the function accepts step 0
  int64_t grain = kGrain;  // elements per task
  double params[4] = {};
};

// out[i] = fn(in..[i]), inputs broadcast to out's shape. Input k is given to fn as comp_of(its dtype), and fn writes
// comp_of(out's dtype). Returns the faults that fn raised.
uint32_t run_elementwise(const Isa& isa, const TileOp& op, const tsr_tensor* const* inputs, const tsr_tensor& out);

// The function for `op` on `comp`: this ISA's, else the scalar one. Null when the op does not exist for that type.
TileFn find_tile(const Isa& isa, Op op, Comp comp);
TileFn find_scalar_tile(Op op, Comp comp);  // scalar_ops.cpp

}  // namespace eager
