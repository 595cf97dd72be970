// SPDX-License-Identifier: Apache-2.0
#include "depthwise/max_pool.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "depthwise/phases.hpp"
#include "depthwise/planes.hpp"
#include "depthwise/tables.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

constexpr int64_t kMaxWindow = 256;

class MaxPoolKernel final : public CopyingKernel {
 public:
  MaxPoolKernel(const sdk::Compile& c, const Isa& isa)
      : attributes_(c.node()),
        isa_(isa),
        x_(c, c.node().operand(0).type()),
        y_(c, c.node().result().type()),
        strided_(may_be_strided(c.graph(), c.node().operand(0))) {
    const auto kernel = c.node().attr("kernel").as_ints();
    for (size_t i = 0; i < kernel.size(); ++i) kernel_[2 - kernel.size() + i] = kernel[i];
    slots_ = std::max(1, sdk::host().core->num_threads());
  }

  std::string name() const override { return std::string("cpu.max_pool.") + isa_.name; }
  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    return slots_ * Phases(shape(d)).bytes() + (strided_ && is_strided(strided, 0) ? x_.bytes(d) : 0);
  }

  void launch(const tsr_launch& l) override {
    const ConvShape s = shape(l.dims);
    const int64_t planes = s.images * s.channels, positions = s.positions();
    if (planes * positions == 0) return;
    const Phases phases(s);
    char* space = static_cast<char*>(l.workspace);
    const float* x = static_cast<const float*>(l.inputs[0].data);
    if (strided_ && !(l.inputs[0].flags & TSR_TENSOR_CONTIGUOUS)) {
      char* copy = space + slots_ * phases.bytes();
      copy_dense(l.inputs[0], copy);
      x = reinterpret_cast<const float*>(copy);
    }
    const int taps = static_cast<int>(kernel_[0] * kernel_[1]);
    int64_t offsets[kMaxWindow];
    for (int t = 0; t < taps; ++t) offsets[t] = phases.offset(s, t / kernel_[1], t % kernel_[1]);
    WindowMax* kernel = isa_.level >= 2 ? window_max_avx512 : isa_.level == 1 ? window_max_avx2 : window_max_baseline;
    CopyPlane* copy_plane = isa_.level >= 2 ? copy_plane_avx512 : isa_.level == 1 ? copy_plane_avx2 : copy_plane_baseline;
    const int64_t slots = std::min<int64_t>({slots_, sdk::host().core->num_threads(), planes});
    each_plane(s, planes, slots, [&](int64_t slot) {
      float* padded = reinterpret_cast<float*>(space + slot * phases.bytes());
      phases.clear(-std::numeric_limits<float>::infinity(), padded);
      return [&, padded](int64_t p, int64_t first, int64_t end) {
        PlaneCopy copy = phases.copy(s, first, end, padded);
        copy.plane = x + p * s.in[0] * s.in[1];
        copy_plane(copy);
        DepthwiseArgs window{};
        window.in_row = phases.row * s.a.stride[0];
        window.in = padded + first * window.in_row;
        window.offsets = offsets, window.taps = taps;
        window.out = static_cast<float*>(l.outputs[0].data) + p * positions + first * s.out[1];
        window.rows = end - first, window.cols = window.out_row = s.out[1];
        kernel(window);
      };
    });
  }

 private:
  ConvShape shape(const int64_t* d) const { return {attributes_, kernel_, x_, y_, d}; }

  ConvAttributes attributes_;
  int64_t kernel_[2] = {1, 1};
  const Isa& isa_;
  LaunchSizes x_, y_;
  bool strided_;
  int slots_ = 1;
};

}  // namespace

const char* refuse_max_pool(const sdk::Node& n) {
  if (n.operand(0).type().dtype() != TSR_F32) return "cpu pools f32";
  if (!n.result(1).uses().empty()) return "cpu computes no indices of maxima";
  const auto kernel = n.attr("kernel").as_ints();
  if (kernel.empty() || kernel.size() > 2) return "cpu pools over one or two dimensions";
  int64_t taps = 1;
  for (const int64_t k : kernel) taps *= k;
  return taps > kMaxWindow ? "the window has more than 256 elements" : nullptr;
}

std::unique_ptr<sdk::Kernel> make_max_pool(const sdk::Compile& c, const Isa& isa) {
  return std::make_unique<MaxPoolKernel>(c, isa);
}

}  // namespace cpu
