// SPDX-License-Identifier: Apache-2.0
// Factories of ops over spatial windows: pooling (pool.cpp), convolution (conv.cpp), resampling (resize.cpp).
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_max_pool(const Build&, int);
KernelPtr make_avg_pool(const Build&, int);
KernelPtr make_adaptive_pool(const Build&, int greatest);

KernelPtr make_conv(const Build&, int);
KernelPtr make_conv_transpose(const Build&, int);

KernelPtr make_interpolate(const Build&, int);

// 1 to 3 spatial dims as exactly 3, leading ones of size 1.
struct Spatial {
  int64_t v[3];
  bool operator==(const Spatial&) const = default;
};
inline Spatial spatial(const Dims& sizes) {  // of an [N, C, spatial..] tensor
  Spatial s{{1, 1, 1}};
  for (int d = 2; d < sizes.rank; ++d) s.v[d + 3 - sizes.rank] = sizes[d];
  return s;
}
inline Spatial spatial(const std::vector<int64_t>& values, int64_t fill) {
  Spatial s{{fill, fill, fill}};
  for (size_t i = 0; i < values.size(); ++i) s.v[i + 3 - values.size()] = values[i];
  return s;
}

}  // namespace eager
