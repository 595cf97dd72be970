// SPDX-License-Identifier: Apache-2.0
// The parts of normalisations that decompositions and gradients share.
#pragma once

#include "build.hpp"

namespace tessera::opset {

inline Var mean_over(Build& b, const Var& x, const Ints& axes) {  // keeps the dimensions
  return x.sum(axes, true) / b.count(b.elements(x, axes), x.dtype());
}

struct Normalized {
  Var centered;  // x - mean
  Var rstd;      // 1 / sqrt(variance + eps), keepdims
  Var xhat() const { return centered * rstd; }
};

inline Normalized normalize(Build& b, const Var& x, const Ints& axes, double eps) {
  const Var d = x - mean_over(b, x, axes);
  return {d, (mean_over(b, d * d, axes) + eps).call("rsqrt")};
}

inline Var rms_scale(Build& b, const Var& x, const Ints& axes, double eps) {
  return (mean_over(b, x * x, axes) + eps).call("rsqrt");
}

// A vector over channels as [C, 1, ..], to broadcast over [N, C, *S].
inline Var per_channel(Build& b, const Var& v, int64_t rank) {
  DimVector shape(static_cast<size_t>(rank - 1), 1);
  shape[0] = v.size(0);
  return b.wide(v).reshape(shape);
}

}  // namespace tessera::opset
