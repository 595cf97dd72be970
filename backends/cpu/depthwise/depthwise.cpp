// SPDX-License-Identifier: Apache-2.0
#include "depthwise/depthwise.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "conv_shape.hpp"
#include "depthwise/phases.hpp"
#include "depthwise/tables.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

constexpr int64_t kMaxTaps = 256;

Depthwise* kernel_of(const Isa& isa) {
  return isa.level >= 2 ? depthwise_avx512 : isa.level == 1 ? depthwise_avx2 : depthwise_baseline;
}

class DepthwiseKernel final : public sdk::Kernel {
 public:
  DepthwiseKernel(const sdk::Compile& c, const Isa& isa)
      : attributes_(c.node()),
        isa_(isa),
        x_(c, c.node().operand(0).type()),
        w_(c, c.node().operand(1).type()),
        out_(c, c.node().result().type()),
        has_bias_(c.node().has_operand(2)) {
    slots_ = std::max(1, sdk::host().core->num_threads());
    for (uint32_t i = 0; i < 3; ++i) strided_[i] = c.node().has_operand(i) && may_be_strided(c.graph(), c.node().operand(i));
    if (has_bias_) bias_ = LaunchSizes(c, c.node().operand(2).type());
  }

  std::string name() const override { return std::string("cpu.conv.depthwise.") + isa_.name; }
  bool has_workspace() const override { return true; }

  int64_t workspace(const int64_t* d) override {
    const ConvShape s(attributes_, x_, w_, out_, d);
    return slots_ * Phases(s).bytes() + (strided_[0] ? x_.bytes(d) : 0) + (strided_[1] ? w_.bytes(d) : 0) +
           (strided_[2] ? bias_.bytes(d) : 0);
  }

  void launch(const tsr_launch& l) override {
    const ConvShape s(attributes_, x_, w_, out_, l.dims);
    const int64_t planes = s.images * s.a.groups * s.outputs;
    if (planes * s.positions() == 0) return;
    const Phases phases(s);
    char* space = static_cast<char*>(l.workspace) + slots_ * phases.bytes();
    const auto dense = [&](uint32_t i) -> const float* {
      const tsr_tensor& t = l.inputs[i];
      if (!strided_[i] || (t.flags & TSR_TENSOR_CONTIGUOUS)) return static_cast<const float*>(t.data);
      copy_dense(t, space);
      const char* at = space;
      space += (i == 0 ? x_ : i == 1 ? w_ : bias_).bytes(l.dims);
      return reinterpret_cast<const float*>(at);
    };
    const float *x = dense(0), *w = dense(1), *bias = has_bias_ ? dense(2) : nullptr;
    const int64_t taps = s.kernel[0] * s.kernel[1], plane = s.in[0] * s.in[1], positions = s.positions();
    int64_t offsets[kMaxTaps];
    for (int64_t t = 0; t < taps; ++t) offsets[t] = phases.offset(s, t / s.kernel[1], t % s.kernel[1]);
    Depthwise* kernel = kernel_of(isa_);
    const double work = static_cast<double>(planes * positions) * static_cast<double>(taps + 4);
    const int64_t slots =
        std::min<int64_t>({slots_, sdk::host().core->num_threads(), planes, static_cast<int64_t>(work / 2e5) + 1});
    const int64_t chunk = std::max<int64_t>(1, planes / (slots * 8));
    std::atomic<int64_t> next{0};
    sdk::parallel(slots, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        float* padded = reinterpret_cast<float*>(static_cast<char*>(l.workspace) + slot * phases.bytes());
        int64_t filled = -1;
        for (int64_t from; (from = next.fetch_add(chunk, std::memory_order_relaxed)) < planes;)
          for (int64_t p = from; p < std::min(planes, from + chunk); ++p) {
            const int64_t channel = p / s.outputs, filter = p % (s.a.groups * s.outputs);  // channel: of all images
            if (filled != channel) phases.fill(s, x + channel * plane, 0.0f, padded);
            filled = channel;
            kernel({padded, phases.row * s.a.stride[0], w + filter * taps, offsets, static_cast<int>(taps),
                    bias ? bias[filter] : 0.0f, static_cast<float*>(l.outputs[0].data) + p * positions, s.out[1], s.out[0],
                    s.out[1]});
          }
      }
    });
  }

 private:
  ConvAttributes attributes_;
  const Isa& isa_;
  LaunchSizes x_, w_, out_, bias_;
  bool has_bias_, strided_[3] = {};
  int slots_ = 1;
};

}  // namespace

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

std::unique_ptr<sdk::Kernel> make_depthwise(const sdk::Compile& c, const Isa& isa) {
  return std::make_unique<DepthwiseKernel>(c, isa);
}

}  // namespace cpu
