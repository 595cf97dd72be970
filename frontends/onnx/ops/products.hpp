// SPDX-License-Identifier: Apache-2.0
// Products that fused operators repeat.
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

V conv_of(Op& op, const V& x, const V& weight, const V& bias);  // Conv, with the attributes of `op`
// Gemm, with the inputs and attributes of `op`; before version 7 input C broadcast only when an attribute said so.
V gemm_of(Op& op, bool unidirectional);

}  // namespace tessera::onnx
