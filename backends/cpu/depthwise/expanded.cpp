// SPDX-License-Identifier: Apache-2.0
#include "depthwise/expanded.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "conv_positions.hpp"
#include "conv_shape.hpp"
#include "depthwise/depthwise.hpp"
#include "depthwise/tables.hpp"
#include "finish.hpp"
#include "gather/tables.hpp"
#include "gemm/gemm.hpp"
#include "packed.hpp"
#include "shares.hpp"
#include "strided.hpp"
#include "tessera/caches.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

int64_t round_up(int64_t x) { return (x + 63) / 64 * 64; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Convolutions {
  sdk::Node first, second;
  std::optional<Finish> between, behind;
  const char* why = nullptr;
};

Convolutions parts_of(const sdk::Node& fused) {
  Convolutions out{{fused.g, TSR_NONE}, {fused.g, TSR_NONE}, {}, {}};
  const sdk::Graph g(fused.g);
  const tsr_id region = fused.regions()[0];
  size_t nodes = 0;
  for (const sdk::Node& n : g.nodes(region)) {
    nodes += !n.is("constant");
    if (n.is("conv")) (out.first ? out.second : out.first) = n;
  }
  const auto refuse = [&](const char* why) {
    out.why = why;
    return out;
  };
  const auto outputs = g.outputs(region);
  if (outputs.size() != 1) return refuse("the region has several results");
  if (is_outer_operand(fused, out.second, 0)) return refuse("the convolutions do not follow each other");
  for (uint32_t i = 0; i < 3; ++i) {
    if (out.first.has_operand(i) && !is_outer_operand(fused, out.first, i)) return refuse("something precedes the convolution");
    if (i > 0 && out.second.has_operand(i) && !is_outer_operand(fused, out.second, i))
      return refuse("something precedes a filter");
  }
  out.between = Finish::chain(fused, out.first, out.second.operand(0).id, &out.why);
  if (!out.between) return out;
  out.behind = Finish::chain(fused, out.second, outputs[0], &out.why);
  if (!out.behind) return out;
  if (nodes != 2 + out.between->size() + out.behind->size()) return refuse("the region holds more than a chain");
  return out;
}

bool is_constant(const sdk::Value& v) { return v.def() && v.def().is("constant"); }

// All sizes are numbers: how the work is cut follows from them.
struct Sizes {
  int64_t images, channels, rows, cols;  // of the input
  int64_t expanded;                      // channels in between
  int64_t out[2], kernel, stride, low[2];
  Sizes(const sdk::Node& first, const sdk::Node& second) {
    const sdk::Type x = first.operand(0).type(), y = second.result().type();
    const ConvAttributes a(second);
    images = x.size(0), channels = x.size(1), rows = x.size(2), cols = x.size(3);
    expanded = y.size(1);
    out[0] = y.size(2), out[1] = y.size(3);
    kernel = second.operand(1).type().size(2), stride = a.stride[0];
    low[0] = a.low[0], low[1] = a.low[1];
  }
};

// A unit of work: `channels` channels of what is in between, in the rows that one of `bands` equal bands of rows of the results
// reads.
struct Cut {
  int64_t groups = 1, bands = 1, channels = 0, most_rows = 0;

  struct Rows {
    int64_t first, end;  // of the results
    int64_t from, to;    // of the input
  };
  static Rows rows(const Sizes& s, int64_t band, int64_t bands) {
    Rows r{s.out[0] * band / bands, s.out[0] * (band + 1) / bands, 0, 0};
    r.from = std::clamp<int64_t>(r.first * s.stride - s.low[0], 0, s.rows);
    r.to = std::clamp<int64_t>((r.end - 1) * s.stride - s.low[0] + s.kernel, r.from, s.rows);
    return r;
  }

  // What takes the fewest cycles of what leaves half of the second-level cache to the rest: bands compute the rows that two of
  // them read twice, and groups read the input again. Channels are in tiles of nearly equal height; with 64 bytes of the input
  // a step of K costs a tile its rows and about kTile, and kPanel once where panels are made, hardly anything where the input
  // is read where it lies.
  Cut(const Sizes& s, const GemmIsa& isa, int64_t slots) {
    constexpr double kTile = 3, kPanel = 8, kUnit = 4000;
    static const int64_t most = tessera::cache_bytes(2, int64_t{512} << 10) / 2;
    double least = std::numeric_limits<double>::infinity();
    std::vector<int64_t> divisors;
    for (int64_t g = 1; g <= s.expanded; ++g)
      if (s.expanded % g == 0) divisors.push_back(g);
    for (int64_t b = 1; b <= s.out[0]; ++b) {
      int64_t tallest = 0, all = 0;
      for (int64_t i = 0; i < b; ++i) {
        const Rows r = rows(s, i, b);
        tallest = std::max(tallest, r.to - r.from), all += r.to - r.from;
      }
      const double steps = static_cast<double>(all * s.cols * s.channels) / 16;  // of K, of 64 bytes of the input each
      for (const int64_t g : divisors) {
        const int64_t each = s.expanded / g, units = s.images * g * b;
        if (each * tallest * s.cols * 4 > most && !(b == s.out[0] && g == s.expanded)) continue;
        const double rows = static_cast<double>(each) + kTile * static_cast<double>(ceil_div(each, isa.mr)) +
                            (s.channels <= Panels::kFewChannels ? 1 : kPanel);
        const double work = static_cast<double>(g) * steps * rows + static_cast<double>(g * b) * kUnit;
        const double cycles = work * static_cast<double>(ceil_div(units, slots) * slots) / static_cast<double>(units);
        if (cycles >= least) continue;
        least = cycles;
        groups = g, bands = b, channels = each, most_rows = tallest;
      }
    }
  }
};

class ExpandedKernel final : public CopyingKernel {
 public:
  ExpandedKernel(const sdk::Compile& c, const Isa& isa, Convolutions parts)
      : isa_(isa),
        gemm_(*gemm_kernels(isa, TSR_F32, TSR_F32)),
        s_(parts.first, parts.second),
        slots_(std::max(1, sdk::host().core->num_threads())),
        cut_(s_, gemm_, slots_),
        between_(std::move(*parts.between)),
        behind_(std::move(*parts.behind)) {
    for (uint32_t i = 0; i < 3; ++i) {
      if (parts.first.has_operand(i)) first_at_[i] = static_cast<int>(outer_operand(c.node(), parts.first, i));
      if (i > 0 && parts.second.has_operand(i)) second_at_[i] = static_cast<int>(outer_operand(c.node(), parts.second, i));
    }
    x_ = LaunchSizes(c, parts.first.operand(0).type());
    strided_ = may_be_strided(c.graph(), c.node().operand(static_cast<uint32_t>(first_at_[0])));
    behind_.bind(c);
    group_bytes_ = packed_left_bytes(gemm_, cut_.channels, s_.channels);
    pack_left_groups(c, c.node().operand(static_cast<uint32_t>(first_at_[1])), gemm_, cut_.groups, cut_.channels, s_.channels,
                     packed_);
    slot_bytes_ = slot_bytes();
  }

  std::string name() const override {
    return "cpu.conv" + between_.name() + ".depthwise" + behind_.name() + (packed_ ? ".packed." : ".") + gemm_.name;
  }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }
  uint64_t unread() const override { return packed_ ? uint64_t{1} << first_at_[1] : 0; }
  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    const bool copies = strided_ && is_strided(strided, static_cast<uint32_t>(first_at_[0]));
    return slots_ * slot_bytes_ + (copies ? x_.bytes(d) : 0) + behind_.workspace_of(d, strided);
  }

  void launch(const tsr_launch& l) override {
    char* space = static_cast<char*>(l.workspace) + slots_ * slot_bytes_;
    const tsr_tensor& t = l.inputs[first_at_[0]];
    const float* x = static_cast<const float*>(t.data);
    if (strided_ && !(t.flags & TSR_TENSOR_CONTIGUOUS)) {
      copy_dense(t, space);
      x = reinterpret_cast<const float*>(space);
      space += x_.bytes(l.dims);
    }
    FinishStep between[Finish::kMaxSteps] = {}, behind[Finish::kMaxSteps] = {};
    const int num_between = between_.steps(l, nullptr, between), num_behind = behind_.steps(l, space, behind);
    const auto constant = [&](int at) { return at < 0 ? nullptr : static_cast<const float*>(l.inputs[at].data); };
    const float *const weights = constant(first_at_[1]), *const bias = constant(first_at_[2]),
                       *const filters = constant(second_at_[1]), *const filter_bias = constant(second_at_[2]);
    float* const out = static_cast<float*>(l.outputs[0].data);
    DepthwiseDirect* const direct = direct_kernel(isa_);
    const int64_t plane = s_.rows * s_.cols, positions = s_.out[0] * s_.out[1], units = s_.images * cut_.groups * cut_.bands;
    const int64_t slots = std::min<int64_t>({slots_, sdk::host().core->num_threads(), units});
    Shares shares(units, slots);
    sdk::parallel(slots, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        float* const expanded = reinterpret_cast<float*>(static_cast<char*>(l.workspace) + slot * slot_bytes_);
        for (int64_t u, to; shares.take(slot, &u, &to);) {
          // Neighbours are bands of the same channels, or channels of the same rows where there are no bands.
          const int64_t band = u % cut_.bands, group = u / cut_.bands % cut_.groups, image = u / cut_.bands / cut_.groups;
          const Cut::Rows r = Cut::rows(s_, band, cut_.bands);
          const int64_t count = (r.to - r.from) * s_.cols, first_channel = group * cut_.channels;
          const float* const from = x + image * s_.channels * plane + r.from * s_.cols;
          expand(from, weights, count, group, bias ? bias + first_channel : nullptr, between, num_between, expanded);
          for (int64_t c = 0; c < cut_.channels; ++c) {
            const int64_t channel = first_channel + c, at = (image * s_.expanded + channel) * positions + r.first * s_.out[1];
            direct({expanded + c * count,
                    r.to - r.from,
                    s_.cols,
                    {s_.low[0] + r.from - r.first * s_.stride, s_.low[1]},
                    static_cast<int>(s_.kernel),
                    static_cast<int>(s_.stride),
                    filters + channel * s_.kernel * s_.kernel,
                    filter_bias ? filter_bias[channel] : 0.0f,
                    out + at,
                    s_.out[1],
                    0,
                    r.end - r.first,
                    {positions, at, channel, r.first * s_.out[1], behind, num_behind}});
          }
        }
      }
    });
  }

 private:
  struct Source {
    const float* x;
    int64_t plane;
    Spread* spread;
  };

  // Channels of `group` at `count` positions from `x` on, on this thread: to[channel][position]. `weights` are read where they
  // are not packed.
  void expand(const float* x, const float* weights, int64_t count, int64_t group, const float* bias, const FinishStep* steps,
              int num_steps, float* to) const {
    const Source source{x, s_.rows * s_.cols, Panels::form(gemm_, spread_avx512, spread_avx2, spread_baseline)};
    Gemm g;
    g.isa = &gemm_;
    g.a_dtype = g.b_dtype = g.c_dtype = TSR_F32;
    g.m.push(cut_.channels, {s_.channels});
    g.n.push(count, {1});
    g.k.push(s_.channels, {1, 1});
    if (packed_)
      g.packed_a = packed_.data() + group * group_bytes_;
    else
      g.a = weights + group * cut_.channels * s_.channels;
    g.panel = [](const void* p, int64_t, int64_t column, int cols, int64_t k0, int64_t n, float* out, int64_t step) {
      const Source& from = *static_cast<const Source*>(p);
      from.spread({from.x + k0 * from.plane + column, from.plane, cols, n, out, step});
    };
    g.source_context = &source;
    if (s_.channels <= Panels::kFewChannels) g.rows_b = x, g.rows_b_ld = s_.rows * s_.cols;
    g.row_bias = bias;
    g.steps = steps, g.num_steps = num_steps;
    g.c = to;
    gemm_run(g, reinterpret_cast<char*>(to) + expanded_bytes(), 1);
  }

  int64_t expanded_bytes() const { return round_up(cut_.channels * cut_.most_rows * s_.cols * 4); }
  // Of the columns of any band: fewer of them may be cut otherwise.
  int64_t slot_bytes() const {
    int64_t bytes = 0;
    for (int64_t band = 0; band < cut_.bands; ++band) {
      const Cut::Rows r = Cut::rows(s_, band, cut_.bands);
      bytes = std::max(bytes, gemm_workspace(gemm_, 1, cut_.channels, (r.to - r.from) * s_.cols, s_.channels,
                                             {static_cast<bool>(packed_), false, true}, 1));
    }
    return expanded_bytes() + round_up(bytes);
  }

  const Isa& isa_;
  const GemmIsa& gemm_;
  Sizes s_;
  int slots_;
  Cut cut_;
  Finish between_, behind_;
  int first_at_[3] = {-1, -1, -1}, second_at_[3] = {-1, -1, -1};  // operands of the compiled node; -1: none
  int64_t slot_bytes_ = 0, group_bytes_ = 0;                      // of the workspace of a slot; of a group's packed weights
  LaunchSizes x_;
  bool strided_ = false;
  PackedConstant packed_;
};

}  // namespace

bool is_expanded(const sdk::Node& fused) {
  if (!fused.is("fused") || fused.regions().size() != 1) return false;
  int convolutions = 0;
  for (const sdk::Node& n : sdk::Graph(fused.g).nodes(fused.regions()[0])) convolutions += n.is("conv");
  return convolutions == 2;
}

const char* refuse_expanded(const sdk::Node& fused, const Isa& isa) {
  const Convolutions parts = parts_of(fused);
  if (parts.why) return parts.why;
  if (!parts.between->reads_nothing()) return "what is between the convolutions reads another tensor";
  for (const sdk::Node& n : {parts.first, parts.second}) {
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      if (!n.has_operand(i)) continue;
      const sdk::Type t = n.operand(i).type();
      if (t.dtype() != TSR_F32) return "cpu convolves f32";
      if (!t.is_static() || t.elements() == 0) return "a size is symbolic or 0";
      if (i > 0 && !is_constant(fused.operand(outer_operand(fused, n, i)))) return "a filter or bias is not constant";
    }
    if (n.operand(0).type().rank() != 4) return "only convolutions over two dimensions are computed in pairs";
  }
  const ConvAttributes a(parts.first), b(parts.second);
  const sdk::Type w = parts.first.operand(1).type(), f = parts.second.operand(1).type(), y = parts.first.result().type();
  if (a.groups != 1 || w.size(2) != 1 || w.size(3) != 1 || y.size(2) != parts.first.operand(0).type().size(2) ||
      y.size(3) != parts.first.operand(0).type().size(3) || a.stride[0] != 1 || a.stride[1] != 1 || a.low[0] != 0 ||
      a.low[1] != 0)
    return "the first convolution has more than one tap, or a stride";
  if (b.groups != w.size(0) || f.size(0) != b.groups || f.size(1) != 1) return "the second convolution is not depthwise";
  if (!is_direct(isa, b, f.size(2), f.size(3))) return "the depthwise filter is none that reads planes where they lie";
  if (conv_cycles(*gemm_kernels(isa, TSR_F32, TSR_F32), y.size(0), y.size(1), y.size(2) * y.size(3), w.size(1)).rows)
    return "the first convolution takes positions as rows";
  return nullptr;
}

std::unique_ptr<sdk::Kernel> make_expanded(const sdk::Compile& c, const Isa& isa) {
  Convolutions parts = parts_of(c.node());
  if (parts.why)
    throw sdk::Error(TSR_BUG, "TSR-B005", std::string("cpu was asked to compile a group that it does not claim: ") + parts.why);
  return std::make_unique<ExpandedKernel>(c, isa, std::move(parts));
}

}  // namespace cpu
