// SPDX-License-Identifier: Apache-2.0
#include "conv.hpp"

#include <algorithm>
#include <cstring>

#include "conv_operands.hpp"
#include "conv_shape.hpp"
#include "depthwise/depthwise.hpp"
#include "gather/tables.hpp"
#include "packed.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

// A convolution in work, as panels of its matrix need it.
struct Panels {
  static constexpr int kMaxTaps = 1024;
  const ConvShape& s;
  Gather* gather;
  int nr, taps;
  int64_t tap_at[kMaxTaps];

  Panels(const ConvShape& shape, const GemmIsa& isa)
      : s(shape),
        gather(isa.nr == 32   ? gather_avx512
               : isa.nr == 16 ? gather_avx2
                              : gather_baseline),
        nr(isa.nr),
        taps(static_cast<int>(s.kernel[0] * s.kernel[1])) {
    for (int t = 0; t < taps; ++t) tap_at[t] = t / s.kernel[1] * s.a.dilation[0] * s.in[1] + t % s.kernel[1] * s.a.dilation[1];
  }

  void fill(int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out) const {
    int64_t column_at[32];
    uint32_t seen[kMaxTaps];
    std::fill_n(seen, taps, 0u);
    // Columns that lie in one row of the output see a tap in one range of them.
    for (int j = 0; j < cols;) {
      const int64_t o = column + j, oy = o / s.out[1], ox = o % s.out[1];
      const int n = static_cast<int>(std::min<int64_t>(cols - j, s.out[1] - ox));
      const int64_t y = oy * s.a.stride[0] - s.a.low[0], x = ox * s.a.stride[1] - s.a.low[1], step = s.a.stride[1];
      for (int i = 0; i < n; ++i) column_at[j + i] = y * s.in[1] + x + i * step;
      for (int t = 0; t < taps; ++t) {
        const int64_t iy = y + t / s.kernel[1] * s.a.dilation[0], ix = x + t % s.kernel[1] * s.a.dilation[1];
        if (iy < 0 || iy >= s.in[0]) continue;
        const int64_t low = std::clamp<int64_t>(ix >= 0 ? 0 : (-ix + step - 1) / step, 0, n);
        const int64_t high = std::clamp<int64_t>(ix >= s.in[1] ? 0 : (s.in[1] - ix + step - 1) / step, low, n);
        seen[t] |= static_cast<uint32_t>(((uint64_t{1} << high) - (uint64_t{1} << low)) << j);
      }
      j += n;
    }
    for (int j = cols; j < nr; ++j) column_at[j] = column_at[cols - 1] + (j - cols + 1);  // seen by no tap
    // Batch entries are (image, group), and channels of groups follow each other.
    const int64_t plane = s.in[0] * s.in[1];
    const bool near = column_at[nr - 1] - column_at[0] < (int64_t{1} << 30);
    gather({s.x + batch * s.channels * plane, plane, taps, tap_at, column_at, seen, near, k0, count, out});
  }
};

class ConvKernel final : public sdk::Kernel {
 public:
  ConvKernel(const sdk::Compile& c, const Isa& isa, const sdk::Node& conv)
      : attributes_(conv), isa_(gemm_kernels(isa, TSR_F32, TSR_F32)), o_(c, conv) {
    slots_ = std::max(1, sdk::host().core->num_threads());
    const sdk::Type x = conv.operand(0).type(), w = conv.operand(1).type(), y = conv.result().type();
    point_ = attributes_.groups == 1;
    for (int d = 2; d < static_cast<int>(x.rank()); ++d) point_ = point_ && x.size(d) == 1 && y.size(d) == 1 && w.size(d) == 1;
    pack_constant(c.node().operand(o_.at[1]));
  }

  std::string name() const override { return "cpu.conv" + o_.name() + (packed_ ? ".packed." : ".") + isa_->name; }
  bool has_workspace() const override { return true; }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }

  int64_t workspace(const int64_t* d) override { return product_workspace(d) + o_.workspace(d); }

  void launch(const tsr_launch& l) override {
    ConvShape s = shape(l.dims);
    char* space = static_cast<char*>(l.workspace) + product_workspace(l.dims);
    s.x = o_.dense(l, 0, &space);
    Gemm g;
    g.isa = isa_;
    g.a_dtype = g.b_dtype = g.c_dtype = TSR_F32;
    FinishStep steps[Finish::kMaxSteps] = {};
    g.steps = steps;
    if (point_) {  // one position: a product whose columns are output channels
      g.m.push(s.images, {s.channels});
      g.n.push(s.outputs, {s.channels});
      g.k.push(s.channels, {1, 1});
      g.a = s.x;
      g.packed_b = packed_.data();
      if (!packed_) g.b = o_.dense(l, 1, &space);
      g.bias = o_.dense(l, 2, &space), g.bias_dtype = TSR_F32;
      g.c = l.outputs[0].data;
      g.num_steps = o_.steps(l, space, steps);
      for (FinishStep& f : steps)
        if (f.mode == FinishStep::kColumn) f.mode = FinishStep::kRow;
      return gemm_run(g, l.workspace, slots_);
    }
    g.batch.push(s.images, {0, 0});
    g.batch.push(s.a.groups, {s.outputs * s.depth(), 0});
    g.m.push(s.outputs, {s.depth()});
    g.n.push(s.positions(), {1});
    g.k.push(s.depth(), {1, 1});
    if (packed_) {
      g.packed_a = packed_.data();
      g.packed_a_count = s.a.groups;
    } else {
      g.a = o_.dense(l, 1, &space);
    }
    g.row_bias = o_.dense(l, 2, &space);
    g.row_bias_count = s.a.groups;
    s.flatten();
    const Panels panels(s, *isa_);
    g.panel = [](const void* p, int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out) {
      static_cast<const Panels*>(p)->fill(batch, column, cols, k0, count, out);
    };
    g.panel_context = &panels;
    g.c = l.outputs[0].data;
    g.num_steps = o_.steps(l, space, steps);
    gemm_run(g, l.workspace, slots_);
  }

 private:
  ConvShape shape(const int64_t* d) const { return {attributes_, o_.x, o_.w, o_.out, d}; }

  int64_t product_workspace(const int64_t* d) const {
    const ConvShape s = shape(d);
    if (point_)
      return gemm_workspace(*isa_, 1, s.images, s.outputs, s.depth(), {false, static_cast<bool>(packed_), false}, slots_);
    return gemm_workspace(*isa_, s.batches(), s.outputs, s.positions(), s.depth(), {static_cast<bool>(packed_), false, true},
                          slots_);
  }

  void pack_constant(const sdk::Value& v) {
    if (!v.def() || !v.def().is("constant")) return;
    const tsr_tensor& t = v.def().attr("value").as_tensor();
    const int64_t groups = attributes_.groups, outputs = t.sizes[0] / groups;
    int64_t depth = 1;
    for (uint32_t d = 1; d < t.rank; ++d) depth *= t.sizes[d];
    if (outputs * depth == 0) return;
    if (point_) {
      Nest<1> n;
      Nest<2> k;
      n.push(outputs, {depth});
      k.push(depth, {0, 1});
      packed_.make(packed_matrix_bytes(*isa_, outputs, depth),
                   [&](char* to) { pack_matrix(*isa_, t.data, TSR_F32, n, k, to); });
      return;
    }
    const int64_t step = packed_left_bytes(*isa_, outputs, depth);
    Nest<1> m;
    Nest<2> k;
    m.push(outputs, {depth});
    k.push(depth, {1, 1});
    packed_.make(step * groups, [&](char* to) {
      for (int64_t g = 0; g < groups; ++g)
        pack_left(*isa_, static_cast<const float*>(t.data) + g * outputs * depth, TSR_F32, m, k, to + g * step);
    });
  }

  ConvAttributes attributes_;
  const GemmIsa* isa_;
  ConvOperands o_;
  bool point_ = false;
  int slots_ = 1;
  PackedConstant packed_;
};

}  // namespace

namespace {

// Few rows for a group waste most of a tile.
bool few_rows(const sdk::Node& n) {
  const int64_t groups = n.attr("groups").as_int();
  const tsr_dim outputs = n.operand(1).type().size(0);
  return groups > 1 && (TSR_DIM_IS_EXPR(outputs) || outputs / groups < 8);
}

}  // namespace

const char* refuse_conv(const sdk::Node& n) {
  for (uint32_t i = 0; i < n.num_operands(); ++i)
    if (n.has_operand(i) && n.operand(i).type().dtype() != TSR_F32) return "cpu convolves f32";
  const sdk::Type x = n.operand(0).type();
  if (x.rank() != 3 && x.rank() != 4) return "cpu convolves over one or two dimensions";
  if (few_rows(n)) return refuse_depthwise(n);
  int64_t taps = 1;
  for (uint32_t d = 2; d < x.rank(); ++d) {
    const tsr_dim size = n.operand(1).type().size(static_cast<int>(d));
    if (TSR_DIM_IS_EXPR(size)) return "the filter's size is symbolic";
    taps *= size;
  }
  return taps > Panels::kMaxTaps ? "the filter has more than 1024 taps" : nullptr;
}

std::unique_ptr<sdk::Kernel> make_conv(const sdk::Compile& c, const Isa& isa) {
  const sdk::Node conv = c.node().is("fused") ? anchor_of(c.node()) : c.node();
  if (few_rows(conv)) return make_depthwise(c, isa, conv);
  return std::make_unique<ConvKernel>(c, isa, conv);
}

}  // namespace cpu
