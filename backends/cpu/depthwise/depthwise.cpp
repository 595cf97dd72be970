// SPDX-License-Identifier: Apache-2.0
#include "depthwise/depthwise.hpp"

#include <algorithm>
#include <string>

#include "conv_operands.hpp"
#include "conv_shape.hpp"
#include "depthwise/phases.hpp"
#include "depthwise/planes.hpp"
#include "depthwise/tables.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

constexpr int64_t kMaxTaps = 256;

class DepthwiseKernel final : public CopyingKernel {
 public:
  DepthwiseKernel(const sdk::Compile& c, const Isa& isa, const sdk::Node& conv) : attributes_(conv), isa_(isa), o_(c, conv) {
    slots_ = std::max(1, sdk::host().core->num_threads());
  }

  std::string name() const override { return "cpu.conv.depthwise" + o_.name() + "." + isa_.name; }

  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    const ConvShape s(attributes_, o_.x, o_.w, o_.out, d);
    return slots_ * Phases(s).bytes() + o_.workspace_of(d, strided);
  }

  void launch(const tsr_launch& l) override {
    const ConvShape s(attributes_, o_.x, o_.w, o_.out, l.dims);
    const int64_t planes = s.images * s.a.groups * s.outputs;
    if (planes * s.positions() == 0) return;
    const Phases phases(s);
    char* space = static_cast<char*>(l.workspace) + slots_ * phases.bytes();
    const float *x = o_.dense(l, 0, &space), *w = o_.dense(l, 1, &space), *bias = o_.dense(l, 2, &space);
    FinishStep steps[Finish::kMaxSteps];
    const int num_steps = o_.steps(l, space, steps);
    const int64_t taps = s.kernel[0] * s.kernel[1], plane = s.in[0] * s.in[1], positions = s.positions();
    int64_t offsets[kMaxTaps];
    for (int64_t t = 0; t < taps; ++t) offsets[t] = phases.offset(s, t / s.kernel[1], t % s.kernel[1]);
    Depthwise* kernel = isa_.level >= 2 ? depthwise_avx512 : isa_.level == 1 ? depthwise_avx2 : depthwise_baseline;
    CopyPlane* copy_plane = isa_.level >= 2 ? copy_plane_avx512 : isa_.level == 1 ? copy_plane_avx2 : copy_plane_baseline;
    const double work = static_cast<double>(planes * positions) * static_cast<double>(taps + 4);
    const int64_t slots =
        std::min<int64_t>({slots_, sdk::host().core->num_threads(), planes, static_cast<int64_t>(work / 2e5) + 1});
    if (is_direct(isa_, s.a, s.kernel[0], s.kernel[1])) {
      DepthwiseDirect* direct = direct_kernel(isa_);
      each_plane(s, planes, slots, [&](int64_t) {
        return [&](int64_t p, int64_t first, int64_t end) {
          const int64_t filter = p % (s.a.groups * s.outputs);
          direct({x + p / s.outputs * plane,
                  s.in[0],
                  s.in[1],
                  {s.a.low[0], s.a.low[1]},
                  static_cast<int>(s.kernel[0]),
                  static_cast<int>(s.a.stride[0]),
                  w + filter * taps,
                  bias ? bias[filter] : 0.0f,
                  static_cast<float*>(l.outputs[0].data) + p * positions,
                  s.out[1],
                  first,
                  end,
                  {positions, p * positions, filter, 0, steps, num_steps}});
        };
      });
      return;
    }
    each_plane(s, planes, slots, [&](int64_t slot) {
      float* padded = reinterpret_cast<float*>(static_cast<char*>(l.workspace) + slot * phases.bytes());
      phases.clear(0.0f, padded);
      int64_t filled = -1, filled_from = 0;
      return [&, padded, filled, filled_from](int64_t p, int64_t first, int64_t end) mutable {
        const int64_t channel = p / s.outputs, filter = p % (s.a.groups * s.outputs);  // channel: of all images
        if (filled != channel || filled_from != first) {
          PlaneCopy copy = phases.copy(s, first, end, padded);
          copy.plane = x + channel * plane;
          copy_plane(copy);
        }
        filled = channel, filled_from = first;
        const int64_t in_row = phases.row * s.a.stride[0], at = first * s.out[1];
        const FinishArgs finish{positions, p * positions + at, filter, at, steps, num_steps};
        kernel({padded + first * in_row, in_row, w + filter * taps, offsets, static_cast<int>(taps), bias ? bias[filter] : 0.0f,
                static_cast<float*>(l.outputs[0].data) + p * positions + at, s.out[1], end - first, s.out[1], finish});
      };
    });
  }

 private:
  ConvAttributes attributes_;
  const Isa& isa_;
  ConvOperands o_;
  int slots_ = 1;
};

}  // namespace

bool is_direct(const Isa& isa, const ConvAttributes& a, int64_t rows, int64_t columns) {
  return isa.level >= 1 && rows == columns && (rows == 3 || rows == 5) && a.dilation[0] == 1 && a.dilation[1] == 1 &&
         a.stride[0] == a.stride[1] && (a.stride[0] == 1 || a.stride[0] == 2);
}
DepthwiseDirect* direct_kernel(const Isa& isa) { return isa.level >= 2 ? depthwise_direct_avx512 : depthwise_direct_avx2; }

const char* refuse_depthwise(const sdk::Node& n) {
  const sdk::Type w = n.operand(1).type();
  int64_t taps = 1;
  for (uint32_t d = 1; d < w.rank(); ++d) {
    if (TSR_DIM_IS_EXPR(w.size(static_cast<int>(d)))) return "the filter's size is symbolic";
    taps *= w.size(static_cast<int>(d));
  }
  if (w.size(1) != 1) return "a group has several input channels";
  if (taps > kMaxTaps) return "the filter has more than 256 taps";
  return nullptr;
}

std::unique_ptr<sdk::Kernel> make_depthwise(const sdk::Compile& c, const Isa& isa, const sdk::Node& conv) {
  return std::make_unique<DepthwiseKernel>(c, isa, conv);
}

}  // namespace cpu
