// SPDX-License-Identifier: Apache-2.0
#include "conv.hpp"

#include <algorithm>

#include "conv_operands.hpp"
#include "conv_positions.hpp"
#include "conv_shape.hpp"
#include "depthwise/depthwise.hpp"
#include "packed.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"
#include "winograd/winograd.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

// A vector of positions must be a stretch of a copied plane, and the copies worth their memory.
constexpr int64_t kMostCopied = 1 << 20;  // values of an image
bool can_copy_planes(const GemmIsa& isa, const ConvAttributes& a, const sdk::Type& x, const sdk::Type& w, const sdk::Type& y) {
  int64_t values = 1, taps = 1;
  for (uint32_t d = 1; d < x.rank(); ++d) {
    if (TSR_DIM_IS_EXPR(x.size(static_cast<int>(d)))) return false;
    values *= x.size(static_cast<int>(d));
  }
  for (uint32_t d = 2; d < w.rank(); ++d) taps *= w.size(static_cast<int>(d));
  const bool flat = taps == 1 && a.stride[0] == 1 && a.stride[1] == 1;
  return !flat && values <= kMostCopied && y.size(static_cast<int>(y.rank()) - 1) % (isa.nr / 2) == 0;
}

bool can_filter_minimally(const ConvAttributes& a, const sdk::Type& w, const sdk::Type& y) {
  return y.rank() == 4 && w.size(2) == 3 && w.size(3) == 3 && a.stride[0] == 1 && a.stride[1] == 1 && a.dilation[0] == 1 &&
         a.dilation[1] == 1;
}

bool is_constant(const sdk::Value& v) { return v.def() && v.def().is("constant"); }

const WinogradIsa& winograd_of(const Isa& isa, int size) {
  return isa.level >= 2 ? winograd_avx512(size) : isa.level == 1 ? winograd_avx2(size) : winograd_baseline(size);
}

// One position is a product of channels alone.
bool is_point(const ConvAttributes& a, const sdk::Type& x, const sdk::Type& w, const sdk::Type& y) {
  if (a.groups != 1) return false;
  for (int d = 2; d < static_cast<int>(x.rank()); ++d)
    if (x.size(d) != 1 || y.size(d) != 1 || w.size(d) != 1) return false;
  return true;
}

class ConvKernel final : public CopyingKernel {
 public:
  ConvKernel(const sdk::Compile& c, const Isa& isa, const sdk::Node& conv, int most_winograd, ConvWay way)
      : attributes_(conv), isa_(gemm_kernels(isa, TSR_F32, TSR_F32)), o_(c, conv) {
    slots_ = std::max(1, sdk::host().core->num_threads());
    const sdk::Type x = conv.operand(0).type(), w = conv.operand(1).type(), y = conv.result().type();
    point_ = is_point(attributes_, x, w, y);
    if (way != ConvWay::kPredicted)
      take_way(isa, way);
    else if (!point_ && attributes_.groups == 1)
      choose_way(isa, x, w, y, most_winograd, !c.unfrozen() && is_constant(c.node().operand(o_.at[1])));
    pack_constant(c, c.node().operand(o_.at[1]));
    rows_ = rows_ && packed_;
  }

  std::string name() const override {
    return "cpu.conv" + o_.name() +
           (winograd_ ? (winograd_->size == 2 ? ".winograd2" : ".winograd4")
            : rows_   ? ".rows"
            : planes_ ? ".planes"
                      : "") +
           (packed_ ? ".packed." : ".") + isa_->name;
  }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }
  // Minimal filtering keeps the weights for results that are not finite.
  uint64_t unread() const override { return packed_ && !winograd_ ? uint64_t{1} << o_.at[1] : 0; }

  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    return product_workspace(d) + o_.workspace_of(d, strided);
  }

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
    s.flatten();
    g.c = l.outputs[0].data;
    if (winograd_) {
      char* copies = space;  // of the operands of steps; there is none of a constant
      const char* filters = packed_.data();
      if (!packed_) {
        char* to = static_cast<char*>(l.workspace) + filtering_workspace(s);
        winograd_transform(*isa_, *winograd_, o_.dense(l, 1, &copies), s.outputs, s.channels, to);
        filters = to;
      }
      const float* bias = o_.dense(l, 2, &copies);
      g.num_steps = o_.steps(l, copies, steps);
      if (winograd_run({isa_, winograd_, &s, filters, bias, static_cast<float*>(g.c), steps, g.num_steps}, l.workspace, slots_))
        return;
    }
    Panels panels(s, *isa_);
    g.source_context = &panels;
    if (rows_) {
      g.m.push(s.images * s.positions(), {0});
      g.n.push(s.outputs, {0});
      g.k.push(s.depth(), {0, 0});
      g.packed_b = packed_.data();
      g.row_source = [](const void* p, int64_t row, int rows, float* out) {
        static_cast<const Panels*>(p)->rows(row, rows, out);
      };
      g.transposed = s.positions();
      g.bias = o_.dense(l, 2, &space), g.bias_dtype = TSR_F32;
      g.num_steps = o_.steps(l, space, steps);
      return gemm_run(g, l.workspace, slots_);
    }
    if (planes_)
      panels.copy(
          reinterpret_cast<float*>(static_cast<char*>(l.workspace) + product_workspace(l.dims) - Panels::copies_bytes(s)),
          slots_);
    g.batch.push(s.images, {0, 0});
    g.batch.push(s.a.groups, {s.outputs * s.depth(), 0});
    g.m.push(s.outputs, {s.depth()});
    g.n.push(s.positions(), {1});
    g.k.push(s.depth(), {1, 1});
    if (packed_ && !winograd_) {
      g.packed_a = packed_.data();
      g.packed_a_count = s.a.groups;
    } else {
      g.a = o_.dense(l, 1, &space);
    }
    g.row_bias = o_.dense(l, 2, &space);
    g.row_bias_count = s.a.groups;
    g.panel = [](const void* p, int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out, int64_t step) {
      static_cast<const Panels*>(p)->columns(batch, column, cols, k0, count, out, step);
    };
    if (s.is_flat() && (s.outputs <= kFewOutputs || s.channels <= Panels::kFewChannels)) {
      g.rows_b = s.x;
      g.rows_b_batch = s.channels * s.positions();
      g.rows_b_ld = s.positions();
    }
    g.num_steps = o_.steps(l, space, steps);
    gemm_run(g, l.workspace, slots_);
  }

 private:
  // Panels of input values are read where they lie, instead of gathered, where few tiles read them too.
  static constexpr int64_t kFewOutputs = 60;
  static constexpr int64_t kCopiedOutputs = 64;  // more make up for gathering positions one by one

  ConvShape shape(const int64_t* d) const { return {attributes_, o_.x, o_.w, o_.out, d}; }

  int64_t product_workspace(const int64_t* d) const {
    const ConvShape s = shape(d);
    if (point_)
      return gemm_workspace(*isa_, 1, s.images, s.outputs, s.depth(), {false, static_cast<bool>(packed_), false}, slots_);
    if (rows_)
      return gemm_workspace(*isa_, 1, s.images * s.positions(), s.outputs, s.depth(), {false, true, false, true}, slots_);
    const bool packed = packed_ && !winograd_;
    const int64_t bytes =
        gemm_workspace(*isa_, s.batches(), s.outputs, s.positions(), s.depth(), {packed, false, true}, slots_);
    if (planes_) return (bytes + 63) / 64 * 64 + Panels::copies_bytes(s);
    if (!winograd_) return bytes;
    const int64_t filters = packed_ ? 0 : winograd_packed_bytes(*isa_, winograd_->size, s.outputs, s.channels);
    return (std::max(bytes, filtering_workspace(s) + filters) + 63) / 64 * 64;
  }
  int64_t filtering_workspace(const ConvShape& s) const {
    return (winograd_workspace(*isa_, *winograd_, s, slots_) + 63) / 64 * 64;
  }

  // By the sizes that are known; a number of images that is not counts as one. Only weights that may be packed have rows for
  // positions. Filters that every run transforms have blocks of 2 x 2, which are exact where sums are.
  void choose_way(const Isa& isa, sdk::Type x, sdk::Type w, sdk::Type y, int most_winograd, bool may_pack) {
    int64_t positions = 1, depth = 1;
    for (uint32_t d = 1; d < w.rank(); ++d) {
      if (TSR_DIM_IS_EXPR(w.size(static_cast<int>(d)))) return;
      depth *= w.size(static_cast<int>(d));
    }
    for (uint32_t d = 2; d < y.rank(); ++d) {
      if (TSR_DIM_IS_EXPR(y.size(static_cast<int>(d)))) return;
      positions *= y.size(static_cast<int>(d));
    }
    if (TSR_DIM_IS_EXPR(w.size(0)) || positions * depth == 0) return;
    const int64_t images = TSR_DIM_IS_EXPR(x.size(0)) ? 1 : x.size(0), outputs = w.size(0);
    const ConvCycles direct = conv_cycles(*isa_, images, outputs, positions, depth);
    rows_ = direct.rows && may_pack;
    planes_ = !rows_ && outputs <= kCopiedOutputs && can_copy_planes(*isa_, attributes_, x, w, y);
    if (!can_filter_minimally(attributes_, w, y)) return;
    const int most = may_pack ? most_winograd : std::min(most_winograd, 2);
    const int size = winograd_size(*isa_, most, images, w.size(1), outputs, {y.size(2), y.size(3)}, direct.cycles, may_pack);
    if (size == 0) return;
    winograd_ = &winograd_of(isa, size);
    rows_ = planes_ = false;
  }

  void take_way(const Isa& isa, ConvWay way) {
    rows_ = way == ConvWay::kRows, planes_ = way == ConvWay::kPlanes;
    if (way == ConvWay::kWinograd2 || way == ConvWay::kWinograd4)
      winograd_ = &winograd_of(isa, way == ConvWay::kWinograd2 ? 2 : 4);
  }

  void pack_constant(const sdk::Compile& c, const sdk::Value& v) {
    if (!is_constant(v)) return;
    const tsr_tensor& t = v.def().attr("value").as_tensor();
    const int64_t groups = attributes_.groups, outputs = t.sizes[0] / groups;
    int64_t depth = 1;
    for (uint32_t d = 1; d < t.rank; ++d) depth *= t.sizes[d];
    if (outputs * depth == 0) return;
    if (winograd_) {
      const int64_t channels = t.sizes[1];
      const int size = winograd_->size;
      const std::string form = "winograd " + std::to_string(size) + " " + isa_->name + " " + std::to_string(outputs) + " " +
                               std::to_string(channels);
      packed_.make(c, v, form, winograd_packed_bytes(*isa_, size, outputs, channels),
                   [&](char* to) { winograd_pack(*isa_, size, static_cast<const float*>(t.data), outputs, channels, to); });
      return;
    }
    if (point_ || rows_) {
      Nest<1> n;
      Nest<2> k;
      n.push(outputs, {depth});
      k.push(depth, {0, 1});
      packed_.make(c, v, std::string("right ") + isa_->name + " n " + text_of(n) + " k " + text_of(k),
                   packed_matrix_bytes(*isa_, outputs, depth),
                   [&](char* to) { pack_matrix(*isa_, t.data, TSR_F32, n, k, to); });
      return;
    }
    pack_left_groups(c, v, *isa_, groups, outputs, depth, packed_);
  }

  ConvAttributes attributes_;
  const GemmIsa* isa_;
  ConvOperands o_;
  bool point_ = false, rows_ = false;      // which product it is: of channels alone; with positions as rows
  bool planes_ = false;                    // input values come from copies of their planes
  const WinogradIsa* winograd_ = nullptr;  // by minimal filtering
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

const char* to_text(ConvWay way) {
  static constexpr const char* kNames[] = {"predicted", "columns", "rows", "planes", "winograd2", "winograd4"};
  return kNames[static_cast<size_t>(way)];
}

std::vector<ConvWay> conv_ways(const sdk::Compile& c, const Isa& isa, int most_winograd) {
  const sdk::Node conv = c.node().is("fused") ? anchor_of(c.node()) : c.node();
  const sdk::Type x = conv.operand(0).type(), w = conv.operand(1).type(), y = conv.result().type();
  const ConvAttributes a(conv);
  const sdk::Value weights = c.node().operand(conv == c.node() ? 1 : outer_operand(c.node(), conv, 1));
  if (!x.is_static() || !w.is_static() || !y.is_static() || y.elements() == 0 || w.elements() == 0 || a.groups != 1 ||
      is_point(a, x, w, y) || !is_constant(weights))
    return {};
  std::vector<ConvWay> out = {ConvWay::kColumns, ConvWay::kRows};
  if (can_copy_planes(*gemm_kernels(isa, TSR_F32, TSR_F32), a, x, w, y)) out.push_back(ConvWay::kPlanes);
  if (can_filter_minimally(a, w, y)) {
    if (most_winograd >= 2) out.push_back(ConvWay::kWinograd2);
    if (most_winograd >= 4) out.push_back(ConvWay::kWinograd4);
  }
  return out;
}

std::unique_ptr<sdk::Kernel> make_conv(const sdk::Compile& c, const Isa& isa, int most_winograd, ConvWay way) {
  const sdk::Node conv = c.node().is("fused") ? anchor_of(c.node()) : c.node();
  if (few_rows(conv)) return make_depthwise(c, isa, conv);
  return std::make_unique<ConvKernel>(c, isa, conv, most_winograd, way);
}

}  // namespace cpu
