// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

// The exact convolution of 8-bit integers whose attributes are those of Conv; zero points may be missing.
V integer_conv(Op& op, const V& x, const V& weight, const V& x_zero, const V& weight_zero);

}  // namespace tessera::onnx
