// SPDX-License-Identifier: Apache-2.0
// Factories of ops that create or move data without computing: shape.cpp, slice_pad.cpp, create.cpp.
#pragma once

#include "build.hpp"

namespace eager {

// create.cpp
KernelPtr make_constant(const Build&, int);
KernelPtr make_full(const Build&, int);
KernelPtr make_iota(const Build&, int);
KernelPtr make_dim_value(const Build&, int);
KernelPtr make_shape_of(const Build&, int);
KernelPtr make_one_hot(const Build&, int);

// shape.cpp
KernelPtr make_reshape(const Build&, int);  // expand_dims, squeeze too: the same elements in the same order
KernelPtr make_transpose(const Build&, int);
KernelPtr make_broadcast_to(const Build&, int);
KernelPtr make_as_strided(const Build&, int);
KernelPtr make_flip(const Build&, int);
KernelPtr make_diagonal(const Build&, int);
KernelPtr make_concat(const Build&, int);
KernelPtr make_stack(const Build&, int);
KernelPtr make_split(const Build&, int);
KernelPtr make_tile(const Build&, int);
KernelPtr make_roll(const Build&, int);
KernelPtr make_triangle(const Build&, int upper);

// slice_pad.cpp
KernelPtr make_slice(const Build&, int);
KernelPtr make_pad(const Build&, int);
KernelPtr make_dynamic_slice(const Build&, int);
KernelPtr make_dynamic_update_slice(const Build&, int);

}  // namespace eager
