// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "window_ops.hpp"

namespace eager {

struct ConvAttrs {
  Spatial strides, low, high, dilation;
  int64_t groups = 1;
};

// Sizes and strides of one convolution; channels are per group.
struct ConvShape {
  ConvAttrs attrs;
  View x, w;
  int64_t batch, groups, in_channels, out_channels, taps, positions;
  Spatial in, out, kernel;
  int64_t x_step[3], w_step[3];
  ConvShape(const tsr_launch& l, const ConvAttrs& a);
};

// Any dtype and strides.
void run_conv(const Isa& isa, const ConvAttrs& attrs, bool transposed, const tsr_launch& l);

}  // namespace eager
