// SPDX-License-Identifier: Apache-2.0
// Parts of operators on quantised tensors that several files share.
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

// round(value) + zero, saturated: `value` is x / scale, `zero` broadcasts, or is absent.
V saturate(Op& op, const V& value, const V& zero, tsr_dtype to);

// An operand of an integer product as i32, without its zero point. A vector of zero points counts rows of a left operand, columns of a
// right one.
V integer_operand(Op& op, const V& v, const V& zero, bool left);

// A scale or zero point that may be written as a vector of one.
V one_or_all(Build& b, const V& v);

// x as u8 with the scale and zero point of its own range, as DynamicQuantizeLinear says; of nothing but zeros the scale is 1.
struct Quantised {
  V values, scale, zero;
};
Quantised quantize_dynamically(Op& op, const V& x);

}  // namespace tessera::onnx
