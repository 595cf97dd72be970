// SPDX-License-Identifier: Apache-2.0
// matmul_integer: the left side is packed on the way, the right side beforehand where it is a constant.
#include "product.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "gemm/nest.hpp"
#include "integer/integer.hpp"
#include "packed.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

const IntegerIsa& integer_kernels(const Isa& isa) {
  if (isa.level >= 2) return __builtin_cpu_supports("avx512vnni") ? integer_avx512_vnni() : integer_avx512();
  return isa.level == 1 ? integer_avx2() : integer_baseline();
}

namespace {

bool is_one_value(const sdk::Type& t) {
  for (const tsr_dim d : t.sizes())
    if (d != 1) return false;
  return true;
}

class IntegerProductKernel final : public StridedKernel {
 public:
  IntegerProductKernel(const sdk::Compile& c, const Isa& isa)
      : isa_(integer_kernels(isa)),
        axes_(matmul_axes(c.node())),
        a_(c, c.node().operand(0).type()),
        b_(c, c.node().operand(1).type()),
        left_(isa_, c.node().operand(0).type().dtype(), false),
        right_(isa_, c.node().operand(1).type().dtype(), true),
        zero_per_column_(!is_one_value(c.node().operand(3).type())) {
    slots_ = std::max(1, sdk::host().core->num_threads());
    const sdk::Value w = c.node().operand(1);
    if (!w.def() || !w.def().is("constant") || !w.type().is_static() || !axes_.batch.empty()) return;
    const tsr_tensor& t = w.def().attr("value").as_tensor();
    const Right r = right_of(t);
    const std::string form = std::string("integer right ") + isa_.name + " n " + text_of(r.n) + " k " + std::to_string(r.k) +
                             ":" + std::to_string(r.k_stride) + (right_.elements.is_signed ? " s" : " u");
    packed_.make(c, w, form, r.bytes(isa_) + kPackedSlack, [&](char* to) {
      for (int64_t p = 0; p < r.panels(isa_); ++p) pack_panel(r, static_cast<const uint8_t*>(t.data), p, to);
    });
  }

  std::string name() const override { return std::string("cpu.matmul_integer") + (packed_ ? ".packed." : ".") + isa_.name; }
  bool has_workspace() const override { return true; }
  double pack_seconds() const override { return packed_.seconds(); }
  int64_t held_bytes() const override { return packed_.bytes(); }
  uint64_t unread() const override { return packed_ ? 2 : 0; }

  int64_t workspace(const int64_t* d) override {
    int64_t m = 1, n = 1;
    for (const int x : axes_.m) m *= a_.at(x, d);
    for (const int x : axes_.n) n *= b_.at(x, d);
    const int64_t k = a_.at(axes_.k[0].first, d), words = words_of(isa_, k), columns = (n + isa_.nr - 1) / isa_.nr * isa_.nr;
    return line_up(words * m * 4) + 3 * line_up(m * 4) + 3 * line_up(columns * 4) + slots_ * scratch_bytes() +
           (packed_ ? 0 : line_up((words + 1) * columns * 4)) + 4096;
  }

  void launch(const tsr_launch& l) override {
    const tsr_tensor &a = l.inputs[0], &b = l.inputs[1];
    Nest<3> batch;  // of a, b and the result
    Nest<1> m;
    int64_t items = 1, rows = 1;
    for (const int x : axes_.m) m.push(a.sizes[x], {a.strides[x]}), rows *= a.sizes[x];
    const Right r = right_of(b);
    const int64_t columns = r.n.total();
    std::vector<int64_t> sizes;
    for (const auto& [x, y] : axes_.batch) sizes.push_back(x < 0 || a.sizes[x] == 1 ? (y < 0 ? 1 : b.sizes[y]) : a.sizes[x]);
    for (const int64_t s : sizes) items *= s;
    int64_t step = items * rows * columns;
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto [x, y] = axes_.batch[i];
      step /= std::max<int64_t>(1, sizes[i]);
      batch.push(sizes[i], {stride_of(a, x), stride_of(b, y), step});
    }
    if (items * rows * columns == 0) return;
    for (int64_t i = 0; i < items; ++i) {
      int64_t at[3];
      batch.at(i, at);
      run(l, static_cast<const uint8_t*>(a.data) + at[0], m, a.strides[axes_.k[0].first],
          static_cast<const uint8_t*>(b.data) + at[1], r, static_cast<int32_t*>(l.outputs[0].data) + at[2]);
    }
  }

 private:
  // Columns of one matrix on the right.
  struct Right {
    Nest<1> n;
    int64_t k, k_stride;
    int64_t panels(const IntegerIsa& isa) const { return (n.total() + isa.nr - 1) / isa.nr; }
    int64_t panel_words(const IntegerIsa& isa) const { return words_of(isa, k) * isa.nr; }
    int64_t bytes(const IntegerIsa& isa) const {
      return panels(isa) * (panel_words(isa) + isa.nr) * 4;
    }  // with sums of columns
  };
  Right right_of(const tsr_tensor& b) const {
    // A constant has no strides: it is dense.
    int64_t dense[kMaxRank];
    int64_t step = 1;
    for (int d = static_cast<int>(b.rank) - 1; d >= 0; --d) dense[d] = step, step *= b.sizes[d];
    const int64_t* strides = b.strides ? b.strides : dense;
    Right r{};
    for (const int y : axes_.n) r.n.push(b.sizes[y], {strides[y]});
    r.k = b.sizes[axes_.k[0].second], r.k_stride = strides[axes_.k[0].second];
    return r;
  }
  static int64_t stride_of(const tsr_tensor& t, int axis) { return axis < 0 || t.sizes[axis] == 1 ? 0 : t.strides[axis]; }

  // Panel p and behind all panels the sums of its columns.
  void pack_panel(const Right& r, const uint8_t* b, int64_t p, char* to) const {
    const int64_t columns = r.n.total(), words = words_of(isa_, r.k);
    int64_t at[64];
    const int cols = static_cast<int>(std::min<int64_t>(isa_.nr, columns - p * isa_.nr));
    for (int j = 0; j < cols; ++j) {
      int64_t o[1];
      r.n.at(p * isa_.nr + j, o);
      at[j] = o[0];
    }
    auto* out = reinterpret_cast<uint32_t*>(to) + p * r.panel_words(isa_);
    isa_.pack({b, at, cols, isa_.nr, r.k, r.k_stride, right_.elements, out});
    int32_t* sums = sums_of(r, to) + p * isa_.nr;
    std::fill_n(sums, isa_.nr, 0);
    isa_.add_up(out, words, isa_.nr, right_.as_signed, sums);
  }
  int32_t* sums_of(const Right& r, char* packed) const {
    return reinterpret_cast<int32_t*>(packed) + r.panels(isa_) * r.panel_words(isa_);
  }
  int64_t scratch_bytes() const { return line_up(int64_t{isa_.mr} * isa_.nr * 4); }

  void run(const tsr_launch& l, const uint8_t* a, const Nest<1>& m, int64_t a_stride, const uint8_t* b, const Right& r,
           int32_t* out) const {
    const int64_t rows = m.total(), columns = r.n.total(), words = words_of(isa_, r.k), panels = r.panels(isa_);
    const RowTiles tiles(rows, isa_.mr);
    char* space = static_cast<char*>(l.workspace);
    const auto take = [&](int64_t bytes) {
      char* p = space;
      space += line_up(bytes);
      return p;
    };
    auto* left = reinterpret_cast<uint32_t*>(take(words * rows * 4));
    auto *row = reinterpret_cast<int32_t*>(take(rows * 4)), *rest = reinterpret_cast<int32_t*>(take(rows * 4));
    auto *column = reinterpret_cast<int32_t*>(take(panels * isa_.nr * 4)),
         *zeros = reinterpret_cast<int32_t*>(take(panels * isa_.nr * 4));
    char* const packed = packed_ ? const_cast<char*>(packed_.data()) : take(r.bytes(isa_));
    char* const scratch = take(slots_ * scratch_bytes());
    const int64_t slots = threads(rows * columns * words);

    const tsr_tensor& zero = l.inputs[3];
    const int32_t za = left_.zero(*static_cast<const uint8_t*>(l.inputs[2].data));
    const auto zero_of = [&](int64_t j) {
      return right_.zero(static_cast<const uint8_t*>(zero.data)[zero_per_column_ ? j * zero.strides[zero.rank - 1] : 0]);
    };
    bool any = false;
    for (int64_t j = 0; j < columns; ++j) any |= (zeros[j] = zero_of(j)) != 0;
    std::fill(zeros + columns, zeros + panels * isa_.nr, 0);

    const int64_t to_pack = packed_ ? 0 : panels;
    in_parts(tiles.count + to_pack, slots, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        if (u >= tiles.count) {
          pack_panel(r, b, u - tiles.count, packed);
          continue;
        }
        const int height = tiles.height(u);
        const int64_t first = tiles.first(u);
        int64_t at[IntegerIsa::kMostRows];
        for (int i = 0; i < height; ++i) {
          int64_t o[1];
          m.at(first + i, o);
          at[i] = o[0];
        }
        uint32_t* to = left + first * words;
        isa_.pack({a, at, height, height, r.k, a_stride, left_.elements, to});
        std::fill_n(row + first, height, 0);
        std::fill_n(rest + first, height, 0);
        if (!any) continue;
        isa_.add_up(to, words, height, left_.as_signed, rest + first);
        for (int i = 0; i < height; ++i)  // sum of a less K za
          rest[first + i] = static_cast<int32_t>(static_cast<uint32_t>(rest[first + i]) -
                                                 static_cast<uint32_t>(za) * static_cast<uint32_t>(r.k));
      }
    });
    const int32_t* sums = sums_of(r, packed);
    for (int64_t j = 0; j < panels * isa_.nr; ++j)
      column[j] = static_cast<int32_t>(static_cast<uint32_t>(za) * static_cast<uint32_t>(sums[j]));

    in_parts(panels * tiles.count, slots, [&](int64_t slot, int64_t begin, int64_t end) {
      auto* tile = reinterpret_cast<int32_t*>(scratch + slot * scratch_bytes());
      for (int64_t u = begin; u < end; ++u) {
        const int64_t p = u / tiles.count, t = u % tiles.count, first = tiles.first(t), col = p * isa_.nr;
        const int height = tiles.height(t);
        isa_.unsigned_left[height](words, left + first * words, reinterpret_cast<const uint32_t*>(packed) + p * words * isa_.nr,
                                   tile);
        isa_.store({tile, height, static_cast<int>(std::min<int64_t>(isa_.nr, columns - col)), row + first, column + col,
                    any ? rest + first : nullptr, zeros + col, out + first * columns + col, columns});
      }
    });
  }

  // Some 10 us of work for a thread at least.
  int64_t threads(int64_t words) const {
    return std::min<int64_t>(slots_, std::min<int64_t>(sdk::host().core->num_threads(), words / (int64_t{1} << 18) + 1));
  }

  const IntegerIsa& isa_;
  ProductAxes axes_;
  LaunchSizes a_, b_;
  IntegerSide left_, right_;
  bool zero_per_column_;
  int slots_ = 1;
  PackedConstant packed_;
};

}  // namespace

const char* refuse_integer_product(const sdk::Node& n) {
  const sdk::Type a = n.operand(0).type(), b = n.operand(1).type(), az = n.operand(2).type(), bz = n.operand(3).type();
  if (a.rank() > static_cast<uint32_t>(kMaxRank) || b.rank() > static_cast<uint32_t>(kMaxRank))
    return "cpu takes tensors of at most 32 dimensions";
  if (!is_one_value(az)) return "cpu takes one zero point for the left side";
  if (is_one_value(bz)) return nullptr;
  for (uint32_t i = 0; i + 1 < bz.rank(); ++i)
    if (bz.size(static_cast<int>(i)) != 1) return "cpu takes a zero point for each column";
  return b.rank() >= 2 ? nullptr : "cpu takes one zero point for a vector";
}

std::unique_ptr<sdk::Kernel> make_integer_product(const sdk::Compile& c, const Isa& isa) {
  return std::make_unique<IntegerProductKernel>(c, isa);
}

}  // namespace cpu
