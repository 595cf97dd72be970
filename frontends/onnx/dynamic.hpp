// SPDX-License-Identifier: Apache-2.0
// Shapes that are data: ranges and shape vectors whose length or elements are known only when the model runs.
#pragma once

#include "op.hpp"

namespace tessera::onnx {

// 0, 1 ... n - 1 for a 0-d n that is data; `hint`: its value where the model declares one (checked when it runs), else -1.
V dynamic_range(Build& b, const V& n, tsr_dim hint = -1);

// The sizes of x as a vector of i64.
inline V shape_vector(Build& b, const V& x) { return b.known(x.sizes()); }

// Element i of a vector as a 0-d i64.
V element(Build& b, const V& vector, int64_t i);

// x broadcast to, or read as, the shape that `shape` holds at run time; `hint` as declared (empty: nothing is).
V dynamic_broadcast(Build& b, const V& x, const V& shape, const Dims& hint);
V dynamic_reshape(Build& b, const V& x, const V& shape, const Dims& hint);

// A bound or step of a slice beyond every size means the same as this one, and leaves room to compute with.
inline constexpr int64_t kBeyond = int64_t{1} << 48;

// Bounds or steps of a slice: sizes where they are known, numbers up to both ends of 64 bits brought to kBeyond.
std::optional<Dims> bounds(Op& op, size_t i);
Dims bounds(Op& op, std::string_view attribute);

// The static length of a vector; throws kData naming input i of op when it is not known.
int64_t vector_length(const Op& op, size_t i);

}  // namespace tessera::onnx
