// SPDX-License-Identifier: Apache-2.0
// conv_integer: rows are output channels, columns are output positions. The channels of x are interleaved to words first, with
// the padding around them; then words of a filter's tap lie side by side for neighbouring positions, and panels are copied from
// them right before they are multiplied. Where a filter is one tap at every position, panels are interleaved from x itself.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "conv_shape.hpp"
#include "integer/integer.hpp"
#include "packed.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

class IntegerConvKernel final : public CopyingKernel {
 public:
  IntegerConvKernel(const sdk::Compile& c, const Isa& isa)
      : isa_(integer_kernels(isa)),
        attributes_(c.node()),
        x_(c, c.node().operand(0).type()),
        w_(c, c.node().operand(1).type()),
        y_(c, c.node().result().type()),
        left_(isa_, c.node().operand(1).type().dtype(), true),
        right_(isa_, c.node().operand(0).type().dtype(), false),
        zero_per_row_(c.node().operand(3).type().elements() != 1) {
    slots_ = std::max(1, sdk::host().core->num_threads());
    for (uint32_t i = 0; i < 2; ++i) strided_[i] = may_be_strided(c.graph(), c.node().operand(i));
    const sdk::Value v = c.node().operand(1);
    if (!v.def() || !v.def().is("constant")) return;
    const tsr_tensor& t = v.def().attr("value").as_tensor();
    std::string form = std::string("integer filters ") + isa_.name + (left_.elements.is_signed ? " s" : " u") + " groups " +
                       std::to_string(attributes_.groups);
    int64_t taps = 1;
    for (uint32_t d = 0; d < t.rank; ++d) form += " " + std::to_string(t.sizes[d]);
    for (uint32_t d = 2; d < t.rank; ++d) taps *= t.sizes[d];
    const int64_t outputs = t.sizes[0] / attributes_.groups;
    packed_.make(c, v, form, filter_bytes(outputs, t.sizes[1], taps) + kPackedSlack,
                 [&](char* to) { pack_filters(static_cast<const uint8_t*>(t.data), outputs, t.sizes[1], taps, to); });
  }

  std::string name() const override { return std::string("cpu.conv_integer") + (packed_ ? ".packed." : ".") + isa_.name; }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }
  uint64_t unread() const override { return packed_ ? 2 : 0; }

  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    const ConvShape s(attributes_, x_, w_, y_, d);
    return line_up(image_words(s) * 4) + slots_ * slot_bytes(s) + 2 * line_up(s.outputs * s.a.groups * 4) +
           (packed_ ? 0 : line_up(filter_bytes(s.outputs, s.channels, s.kernel[0] * s.kernel[1]))) +
           (strided_[0] && is_strided(strided, 0) ? x_.bytes(d) : 0) +
           (strided_[1] && is_strided(strided, 1) ? w_.bytes(d) : 0);
  }

  void launch(const tsr_launch& l) override {
    ConvShape s(attributes_, x_, w_, y_, l.dims);
    if (s.images * s.outputs * s.positions() == 0) return;
    const int64_t taps = s.kernel[0] * s.kernel[1], groups = s.a.groups;
    char* space = static_cast<char*>(l.workspace);
    const auto take = [&](int64_t bytes) {
      char* p = space;
      space += line_up(bytes);
      return p;
    };
    auto* image = reinterpret_cast<uint32_t*>(take(image_words(s) * 4));
    char* const scratch = take(slots_ * slot_bytes(s));
    auto *row = reinterpret_cast<int32_t*>(take(s.outputs * groups * 4)),
         *zeros = reinterpret_cast<int32_t*>(take(s.outputs * groups * 4));
    char* filters = const_cast<char*>(packed_.data());
    if (!packed_) {
      filters = take(filter_bytes(s.outputs, s.channels, taps));
      pack_filters(dense(l, 1, w_, &space), s.outputs, s.channels, taps, filters);
    }
    const uint8_t* x = dense(l, 0, x_, &space);

    const tsr_tensor& zero = l.inputs[3];
    const uint8_t x_zero = *static_cast<const uint8_t*>(l.inputs[2].data);
    const auto zx = static_cast<uint32_t>(right_.zero(x_zero)), depth = static_cast<uint32_t>(s.channels * taps);
    const int32_t* sums = reinterpret_cast<const int32_t*>(filters) + groups * filter_words(s.outputs, s.channels, taps);
    bool any = false;
    for (int64_t o = 0; o < s.outputs * groups; ++o) {
      any |= (zeros[o] = left_.zero(static_cast<const uint8_t*>(zero.data)[zero_per_row_ ? o * zero.strides[0] : 0])) != 0;
      row[o] = static_cast<int32_t>(zx * (static_cast<uint32_t>(sums[o]) - depth * static_cast<uint32_t>(zeros[o])));
    }

    s.flatten();
    const int64_t pixels = s.channels * groups * s.in[0] * s.in[1];
    for (int64_t i = 0; i < s.images; ++i) {
      if (!s.is_flat()) interleave(s, x + i * pixels, x_zero, image);
      multiply(s, x + i * pixels, image, reinterpret_cast<const uint32_t*>(filters), row, any ? zeros : nullptr, scratch,
               static_cast<int32_t*>(l.outputs[0].data) + i * s.outputs * groups * s.positions());
    }
  }

 private:
  // Of one group, without the sums of filters that follow all groups.
  int64_t filter_words(int64_t outputs, int64_t channels, int64_t taps) const {
    return outputs * taps * words_of(isa_, channels);
  }
  int64_t filter_bytes(int64_t outputs, int64_t channels, int64_t taps) const {
    return attributes_.groups * (filter_words(outputs, channels, taps) + outputs) * 4;
  }
  int64_t padded(const ConvShape& s, int d) const { return s.in[d] + s.a.low[d] + s.a.high[d]; }
  int64_t image_words(const ConvShape& s) const {
    if (s.is_flat()) return 0;
    return s.a.groups * words_of(isa_, s.channels) * padded(s, 0) * padded(s, 1);
  }
  int64_t depth_words(const ConvShape& s) const { return s.kernel[0] * s.kernel[1] * words_of(isa_, s.channels); }
  // A panel, the sums of its columns and a tile of sums.
  int64_t slot_bytes(const ConvShape& s) const {
    return line_up((depth_words(s) + 2) * isa_.nr * 4 + int64_t{isa_.mr} * isa_.nr * 4);
  }

  const uint8_t* dense(const tsr_launch& l, uint32_t i, const LaunchSizes& sizes, char** space) const {
    const tsr_tensor& t = l.inputs[i];
    if (!strided_[i] || (t.flags & TSR_TENSOR_CONTIGUOUS)) return static_cast<const uint8_t*>(t.data);
    char* const copy = *space;
    copy_dense(t, copy);
    *space += sizes.bytes(l.dims);
    return reinterpret_cast<const uint8_t*>(copy);
  }

  // [tap][channels / per] words of rows, tile by tile; behind all groups the sum of every filter.
  void pack_filters(const uint8_t* w, int64_t outputs, int64_t channels, int64_t taps, char* to) const {
    const int64_t groups = attributes_.groups, words = words_of(isa_, channels), depth = channels * taps;
    const RowTiles tiles(outputs, isa_.mr);
    auto* const out = reinterpret_cast<uint32_t*>(to);
    auto* const sums = reinterpret_cast<int32_t*>(out + groups * filter_words(outputs, channels, taps));
    std::fill_n(sums, groups * outputs, 0);
    in_parts(groups * tiles.count, slots_, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t g = u / tiles.count, first = tiles.first(u % tiles.count);
        const int height = tiles.height(u % tiles.count);
        uint32_t* tile = out + (g * outputs + first) * words * taps;
        for (int64_t t = 0; t < taps; ++t) {
          int64_t at[IntegerIsa::kMostRows];
          for (int i = 0; i < height; ++i) at[i] = (g * outputs + first + i) * depth + t;
          isa_.pack({w, at, height, height, channels, taps, left_.elements, tile + t * words * height});
        }
        isa_.add_up(tile, words * taps, height, left_.as_signed, sums + g * outputs + first);
      }
    });
  }

  void interleave(const ConvShape& s, const uint8_t* x, uint8_t zero, uint32_t* image) const {
    const int64_t words = words_of(isa_, s.channels), height = padded(s, 0), width = padded(s, 1), plane = s.in[0] * s.in[1];
    const bool has_padding = height != s.in[0] || width != s.in[1];
    in_parts(s.a.groups * words, threads(s.channels * s.a.groups * plane / 16), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t g = u / words, c = u % words * isa_.per;
        uint32_t* const out = image + u * height * width;
        Interleave p{{}, plane, right_.elements, out};
        const uint8_t* from[4] = {};
        for (int64_t j = 0; j < isa_.per && c + j < s.channels; ++j) from[j] = x + (g * s.channels + c + j) * plane;
        if (!has_padding) {
          std::copy(from, from + 4, p.from);
          isa_.interleave(p);
          continue;
        }
        uint32_t pad = 0;
        for (int j = 0; j < 4; ++j) p.from[j] = from[j] ? &zero : nullptr;
        p.count = 1, p.out = &pad;
        isa_.interleave(p);
        p.count = s.in[1];
        std::fill_n(out, s.a.low[0] * width, pad);
        for (int64_t y = 0; y < s.in[0]; ++y) {
          uint32_t* const line = out + (y + s.a.low[0]) * width;
          std::fill_n(line, s.a.low[1], pad);
          for (int j = 0; j < 4; ++j) p.from[j] = from[j] ? from[j] + y * s.in[1] : nullptr;
          p.out = line + s.a.low[1];
          isa_.interleave(p);
          std::fill_n(line + s.a.low[1] + s.in[1], s.a.high[1], pad);
        }
        std::fill_n(out + (s.a.low[0] + s.in[0]) * width, s.a.high[0] * width, pad);
      }
    });
  }

  // Neighbouring positions of a panel that lie in one row of the output.
  struct Run {
    int64_t from;  // of the first tap, in words of a plane
    int at, count;
  };

  void multiply(const ConvShape& s, const uint8_t* x, const uint32_t* image, const uint32_t* filters, const int32_t* row,
                const int32_t* zeros, char* scratch, int32_t* out) const {
    const int64_t positions = s.positions(), panels = (positions + isa_.nr - 1) / isa_.nr, words = words_of(isa_, s.channels),
                  depth = depth_words(s), plane = padded(s, 0) * padded(s, 1);
    const RowTiles tiles(s.outputs, isa_.mr);
    in_parts(s.a.groups * panels * tiles.count, threads(s.a.groups * panels * isa_.nr * s.outputs * depth),
             [&](int64_t slot, int64_t begin, int64_t end) {
               auto* const panel = reinterpret_cast<uint32_t*>(scratch + slot * slot_bytes(s));
               auto* const sums = reinterpret_cast<int32_t*>(panel + depth * isa_.nr);
               int32_t *const none = sums + isa_.nr, *const tile = none + isa_.nr;
               std::fill_n(none, isa_.nr, 0);
               int64_t made = -1;
               for (int64_t u = begin; u < end; ++u) {
                 const int64_t t = u % tiles.count, which = u / tiles.count, p = which % panels, g = which / panels;
                 const int64_t first = g * s.outputs + tiles.first(t), col = p * isa_.nr;
                 const int height = tiles.height(t), cols = static_cast<int>(std::min<int64_t>(isa_.nr, positions - col));
                 if (made != which) {
                   if (s.is_flat())
                     make_flat_panel(s, x + g * s.channels * positions, col, cols, panel);
                   else
                     make_panel(s, image + g * words * plane, col, cols, panel);
                   if (zeros) {
                     std::fill_n(sums, isa_.nr, 0);
                     isa_.add_up(panel, depth, isa_.nr, right_.as_signed, sums);
                   }
                   made = which;
                 }
                 isa_.unsigned_right[height](depth, filters + first * depth, panel, tile);
                 isa_.store({tile, height, cols, row + first, none, zeros ? zeros + first : nullptr, sums,
                             out + first * positions + col, positions});
               }
             });
  }

  void make_flat_panel(const ConvShape& s, const uint8_t* x, int64_t col, int cols, uint32_t* panel) const {
    const int64_t words = words_of(isa_, s.channels), plane = s.positions();
    for (int64_t w = 0; w < words; ++w, panel += isa_.nr) {
      Interleave p{{}, cols, right_.elements, panel};
      for (int64_t j = 0; j < isa_.per && w * isa_.per + j < s.channels; ++j) p.from[j] = x + (w * isa_.per + j) * plane + col;
      isa_.interleave(p);
      for (int j = cols; j < isa_.nr; ++j) panel[j] = 0;
    }
  }

  void make_panel(const ConvShape& s, const uint32_t* image, int64_t col, int cols, uint32_t* panel) const {
    const int64_t width = padded(s, 1), plane = padded(s, 0) * width, words = words_of(isa_, s.channels);
    Run runs[64];
    int count = 0;
    for (int at = 0; at < cols;) {
      const int64_t y = (col + at) / s.out[1], x = (col + at) % s.out[1];
      const int n = static_cast<int>(std::min<int64_t>(cols - at, s.out[1] - x));
      runs[count++] = {y * s.a.stride[0] * width + x * s.a.stride[1], at, n};
      at += n;
    }
    for (int64_t ty = 0; ty < s.kernel[0]; ++ty)
      for (int64_t tx = 0; tx < s.kernel[1]; ++tx) {
        const uint32_t* from = image + ty * s.a.dilation[0] * width + tx * s.a.dilation[1];
        for (int64_t c = 0; c < words; ++c, from += plane, panel += isa_.nr) {
          for (int i = 0; i < count; ++i) isa_.take(from + runs[i].from, s.a.stride[1], runs[i].count, panel + runs[i].at);
          for (int j = cols; j < isa_.nr; ++j) panel[j] = 0;
        }
      }
  }

  int64_t threads(int64_t words) const {
    return std::min<int64_t>(slots_, std::min<int64_t>(sdk::host().core->num_threads(), words / (int64_t{1} << 18) + 1));
  }

  const IntegerIsa& isa_;
  ConvAttributes attributes_;
  LaunchSizes x_, w_, y_;
  IntegerSide left_, right_;
  bool zero_per_row_;
  bool strided_[2] = {};
  int slots_ = 1;
  PackedConstant packed_;
};

}  // namespace

const char* refuse_integer_conv(const sdk::Node& n) {
  const sdk::Type x = n.operand(0).type(), w = n.operand(1).type(), zero = n.operand(3).type();
  if (x.rank() != 3 && x.rank() != 4) return "cpu convolves over one or two dimensions";
  for (int d = 0; d < static_cast<int>(w.rank()); ++d)
    if (TSR_DIM_IS_EXPR(w.size(d))) return "the filter's size is symbolic";
  const ConvAttributes a(n);
  if (a.low[0] < 0 || a.low[1] < 0 || a.high[0] < 0 || a.high[1] < 0) return "cpu takes integers with padding of 0 or more";
  if (a.groups > 1 && (w.size(0) / a.groups < 8 || w.size(1) < 4)) return "groups of few channels waste most of a tile";
  for (uint32_t i = 0; i < zero.rank(); ++i)
    if (const bool channels = zero.rank() == w.rank() && i == 0; zero.size(static_cast<int>(i)) != 1 && !channels)
      return "cpu takes a zero point for each output channel";
  return nullptr;
}

std::unique_ptr<sdk::Kernel> make_integer_conv(const sdk::Compile& c, const Isa& isa) {
  return std::make_unique<IntegerConvKernel>(c, isa);
}

}  // namespace cpu
