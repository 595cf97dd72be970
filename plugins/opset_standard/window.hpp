// SPDX-License-Identifier: Apache-2.0
// Output sizes of convolutions and pooling windows; the formulas stand in the records' numerics (linalg.tops).
#pragma once

#include "dims.hpp"

namespace tessera::opset {

struct Window {  // along one spatial dimension
  tsr_dim size = 0, kernel = 1;
  int64_t stride = 1, pad_low = 0, pad_high = 0, dilation = 1;

  // Extent of the dilated kernel.
  tsr_dim extent(const Dims& d) const { return d.add(d.mul(d.sub(kernel, 1), dilation), 1); }

  // floor((size + pads - extent) / stride) + 1; rounded up with ceil_mode, but no window begins in the high padding. Below
  // 1 where the kernel does not fit.
  tsr_dim output(const Dims& d, bool ceil_mode = false) const {
    const tsr_dim span = d.sub(d.add(size, pad_low + pad_high), extent(d));
    if (!ceil_mode) return d.add(d.floordiv(span, stride), 1);
    const tsr_dim rounded = d.add(d.floordiv(d.add(span, stride - 1), stride), 1);
    const tsr_dim last = d.add(d.floordiv(d.add(size, pad_low - 1), stride), 1);
    return d.min(rounded, last);
  }

  // Size that conv_transpose gives without output_pad.
  tsr_dim transposed(const Dims& d) const { return d.add(d.sub(d.mul(d.sub(size, 1), stride), pad_low + pad_high), extent(d)); }
};

}  // namespace tessera::opset
