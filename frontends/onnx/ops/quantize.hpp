// SPDX-License-Identifier: Apache-2.0
// Parts of operators on quantised tensors that several files share.
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

// round(value) + zero, saturated: `value` is x / scale, `zero` broadcasts, or is absent.
V saturate(Op& op, const V& value, const V& zero, tsr_dtype to);

// The elements of a quantised tensor as i32, without their zero point.
V integers_of(Op& op, const V& v, const V& zero);

// The zero point of an operand of a product, 0 without one. A vector of them counts rows of a left operand, columns of a right
// one.
V zero_point(Op& op, const V& v, V zero, bool left);
// The product of two quantised matrices without their zero points, which may be missing: i32, exact.
V integer_product(Op& op, const V& a, const V& b, const V& a_zero, const V& b_zero);

// A scale or zero point that may be written as a vector of one.
V one_or_all(Build& b, const V& v);

// x as u8 with the scale and zero point of its own range, as DynamicQuantizeLinear says; of nothing but zeros the scale is 1.
struct Quantised {
  V values, scale, zero;
};
Quantised quantize_dynamically(Op& op, const V& x);

}  // namespace tessera::onnx
