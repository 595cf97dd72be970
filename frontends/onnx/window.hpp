// SPDX-License-Identifier: Apache-2.0
// Strides, dilations and pads of operators that slide a window, as the IR wants them: auto_pad resolved.
#pragma once

#include "op.hpp"

namespace tessera::onnx {

struct Window {
  Ints kernel, strides, dilations, low, high;
  [[nodiscard]] size_t dims() const { return kernel.size(); }
};

// `x`: [N, C, spatial]; `kernel`: of the weights or of the attribute kernel_shape.
inline Window window(Op& op, const V& x, Ints kernel) {
  const auto n = static_cast<size_t>(x.rank() - 2);
  op.expect(x.rank() >= 3 && kernel.size() == n,
            "a window of " + std::to_string(kernel.size()) + " dimensions for an input of rank " + std::to_string(x.rank()));
  if (n > 3) op.unsupported(std::to_string(n) + " spatial dimensions", "at most 3 are known here");
  const Ints ones(n, 1);
  Window w{std::move(kernel), op.ints("strides", ones), op.ints("dilations", ones), Ints(n, 0), Ints(n, 0)};
  if (w.strides.empty()) w.strides = ones;
  if (w.dilations.empty()) w.dilations = ones;
  op.expect(w.strides.size() == n && w.dilations.size() == n, "strides or dilations do not fit the input");
  for (size_t i = 0; i < n; ++i)
    op.expect(w.kernel[i] > 0 && w.strides[i] > 0 && w.dilations[i] > 0 && w.kernel[i] < INT32_MAX &&
                  w.strides[i] < INT32_MAX && w.dilations[i] < INT32_MAX,
              "a window, stride or dilation below 1 or too large");
  const std::string_view automatic = op.s("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    for (size_t i = 0; i < n; ++i) {
      const tsr_dim size = x.size(static_cast<int64_t>(i) + 2);
      const int64_t reach = w.dilations[i] * (w.kernel[i] - 1) + 1;
      int64_t total;
      if (Build::is_number(size))
        total = std::max<int64_t>(((size + w.strides[i] - 1) / w.strides[i] - 1) * w.strides[i] + reach - size, 0);
      else if (w.strides[i] == 1)
        total = reach - 1;
      else
        op.unsupported("auto_pad " + std::string(automatic) + " over a symbolic size with a stride",
                       "export with explicit pads");
      w.low[i] = automatic == "SAME_UPPER" ? total / 2 : total - total / 2;
      w.high[i] = total - w.low[i];
    }
  } else if (automatic == "NOTSET" || automatic.empty()) {
    const Ints pads = op.small_ints("pads", Ints(2 * n, 0));
    op.expect(pads.size() == 2 * n, std::to_string(pads.size()) + " pads for " + std::to_string(n) + " spatial dimensions");
    w.low.assign(pads.begin(), pads.begin() + static_cast<int64_t>(n));
    w.high.assign(pads.begin() + static_cast<int64_t>(n), pads.end());
  } else {
    op.expect(automatic == "VALID", "attribute 'auto_pad' is '" + std::string(automatic) + "'");
  }
  return w;
}

}  // namespace tessera::onnx
