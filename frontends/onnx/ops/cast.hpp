// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../op.hpp"

namespace tessera::onnx {

// ONNX's Cast. float8 saturates unless told otherwise (attribute `saturate`); float8e8m0 rounds as `round_mode` says. What is
// out of range of a 2- or 4-bit integer keeps its low bits, as the ONNX reference does (the standard leaves it open).
V cast_to(Op& op, const V& x, tsr_dtype to);

}  // namespace tessera::onnx
