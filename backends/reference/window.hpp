// SPDX-License-Identifier: Apache-2.0
// The geometry of convolution and pooling. One to three spatial dimensions are all treated as three: missing ones come first,
// with size 1 and a window of 1.
#pragma once

#include "op.hpp"

namespace tessera::reference {

struct Window {
  int64_t in[3], out[3], kernel[3], stride[3], low[3], high[3], dilation[3];

  // x [N, C, spatial], y [N, C', spatial]; `kernel` has one size per spatial dimension. Adaptive pooling has no further
  // attributes.
  Window(const Op& op, const Tensor& x, const Tensor& y, const Index& kernel_sizes, bool adaptive = false) {
    const uint32_t spatial = x.rank() - 2, lead = 3 - spatial;
    const Index strides = adaptive ? Index() : op.ints("strides"), lows = adaptive ? Index() : op.ints("pad_low"),
                highs = adaptive ? Index() : op.ints("pad_high"), dilations = adaptive ? Index() : op.ints("dilations");
    for (uint32_t d = 0; d < 3; ++d) {
      in[d] = out[d] = kernel[d] = stride[d] = dilation[d] = 1;
      low[d] = high[d] = 0;
      if (d < lead) continue;
      const uint32_t s = d - lead;
      in[d] = x.size(2 + s);
      out[d] = y.size(2 + s);
      if (adaptive) continue;
      kernel[d] = kernel_sizes[s];
      stride[d] = strides[s];
      low[d] = lows[s];
      high[d] = highs[s];
      dilation[d] = dilations[s];
    }
  }
  int64_t in_elements() const { return in[0] * in[1] * in[2]; }
  int64_t out_elements() const { return out[0] * out[1] * out[2]; }
  int64_t kernel_elements() const { return kernel[0] * kernel[1] * kernel[2]; }
};

}  // namespace tessera::reference
