// SPDX-License-Identifier: Apache-2.0
// Contractions: dot_general, matmul and linear are one loop nest around a block product.
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_dot_general(const Build&, int);
KernelPtr make_matmul(const Build&, int);
KernelPtr make_linear(const Build&, int);

// C[batch.., m, n] = sum over k of A[batch.., m, k] * B[batch.., k, n]. Each group of dims is a nest of loops; C is dense.
struct Contraction {
  Nest<2> batch;  // strides of a, b
  Nest<1> m, n;   // of a; of b
  Nest<2> k;      // of a, b
  View a, b;      // data and dtype; sizes are not used
  void* out = nullptr;
  uint32_t out_dtype = 0;
  const View* bias = nullptr;  // [n], or null
};
void contract(const Isa& isa, const Contraction& c);

}  // namespace eager
