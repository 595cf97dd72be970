// SPDX-License-Identifier: Apache-2.0
// Operands of a convolution, alone or in a `fused` node with what Finish takes behind it.
#pragma once

#include <optional>
#include <string>

#include "finish.hpp"
#include "strided.hpp"

namespace cpu {

struct ConvOperands {
  uint32_t at[3] = {0, 1, 2};  // of the compiled node
  LaunchSizes x, w, bias, out;
  bool has_bias = false, strided[3] = {};
  std::optional<Finish> finish;

  ConvOperands(const tessera::sdk::Compile& c, const tessera::sdk::Node& conv)
      : x(c, conv.operand(0).type()),
        w(c, conv.operand(1).type()),
        out(c, conv.result().type()),
        has_bias(conv.has_operand(2)) {
    const bool alone = conv == c.node();
    for (uint32_t i = 0; i < 3; ++i) {
      if (!conv.has_operand(i)) continue;
      at[i] = alone ? i : outer_operand(c.node(), conv, i);
      strided[i] = may_be_strided(c.graph(), c.node().operand(at[i]));
    }
    if (has_bias) bias = LaunchSizes(c, conv.operand(2).type());
    if (alone) return;
    const char* why = nullptr;
    finish = Finish::of(c.node(), conv, &why);
    if (!finish)
      throw tessera::sdk::Error(TSR_BUG, "TSR-B005",
                                std::string("cpu was asked to compile a group that it does not claim: ") + why);
    finish->bind(c);
  }

  std::string name() const { return finish ? finish->name() : std::string(); }
  int64_t workspace_of(const int64_t* d, uint64_t given) const {
    const auto copy = [&](uint32_t i, const LaunchSizes& s) { return strided[i] && is_strided(given, at[i]) ? s.bytes(d) : 0; };
    return copy(0, x) + copy(1, w) + copy(2, bias) + (finish ? finish->workspace_of(d, given) : 0);
  }
  // Operand i in row-major order, copied to `space` where it is not; null when the convolution has none.
  const float* dense(const tsr_launch& l, uint32_t i, char** space) const {
    if (i == 2 && !has_bias) return nullptr;
    const tsr_tensor& t = l.inputs[at[i]];
    if (!strided[i] || (t.flags & TSR_TENSOR_CONTIGUOUS)) return static_cast<const float*>(t.data);
    copy_dense(t, *space);
    const char* copy = *space;
    *space += (i == 0 ? x : i == 1 ? w : bias).bytes(l.dims);
    return reinterpret_cast<const float*>(copy);
  }
  int steps(const tsr_launch& l, char* space, FinishStep* out_steps) const {
    return finish ? finish->steps(l, space, out_steps) : 0;
  }
};

}  // namespace cpu
