// SPDX-License-Identifier: Apache-2.0
// The gradient of attention on the micro-kernels of gemm. Scores are computed again, for a panel of queries and a block of keys
// at a time: no matrix of queries times keys exists (Dao et al., "FlashAttention", 2022, algorithm 4).
//
// A thread takes one head of keys with all heads of queries that share it, so that sums over queries need no other thread, and
// results do not depend on how many there are.
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/attention.hpp"
#include "attention/panels.hpp"
#include "gemm/gemm.hpp"
#include "shares.hpp"
#include "strided.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

int64_t padded(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

struct BackwardSizes {
  int64_t heads = 1, key_heads = 1, queries = 0, keys = 0, depth = 0, values = 0;
};

// What one thread works in, floats behind each other. "panel": of the right side, for one panel of queries.
struct BackwardSpace {
  int64_t keys, values, transposed_keys;  // left sides, by blocks of keys: [key][depth], [key][value], [depth][key]
  int64_t dk, dv, dk_row, dv_row;         // sums [key][depth] and [key][value], rows *_row floats apart
  int64_t queries_panel, dy_panel;        // [depth][query], [value][query]
  int64_t queries_panels, dy_panels;      // the same transposed: [query][depth], [query][value], in panels of columns
  int64_t weights, gradients, left, dq, mask;
  int64_t rows;  // [3][width]: lse, delta, ones
  int64_t total;
  BackwardSpace(const BackwardSizes& s, const GemmIsa& gemm, bool masked) {
    const int64_t width = gemm.nr, block = std::min(s.keys, kKeysAtOnce);
    int64_t at = 0;
    const auto take = [&](int64_t floats) {
      const int64_t here = at;
      at += padded(floats + 32, 16);  // packing writes up to a vector behind the end
      return here;
    };
    dk_row = padded(s.depth, width), dv_row = padded(s.values, width);
    keys = take(s.keys * s.depth), values = take(s.keys * s.values), transposed_keys = take(s.keys * s.depth);
    dk = take(s.keys * dk_row), dv = take(s.keys * dv_row);
    queries_panel = take(s.depth * width), dy_panel = take(s.values * width);
    queries_panels = take(dk_row * width), dy_panels = take(dv_row * width);
    weights = take(block * width), gradients = take(block * width), left = take(block * width);
    dq = take(s.depth * width);
    mask = take(masked ? block * width : 0);
    rows = take(3 * width);
    total = at;
  }
};

class AttentionBackwardKernel final : public StridedKernel {
 public:
  enum Operand : uint32_t { kDy, kQ, kK, kV, kMask, kLse, kDelta };

  AttentionBackwardKernel(const sdk::Compile& c, const Isa& isa) : isa_(isa), gemm_(*gemm_kernels(isa, TSR_F32, TSR_F32)) {
    const sdk::Node n = c.node();
    scale_ = n.attr("scale").as_float();
    causal_ = n.attr("causal").as_bool();
    if (n.has_operand(kMask)) mask_ = n.operand(kMask).type().dtype() == TSR_BOOL ? MaskKind::kBool : MaskKind::kAdded;
    q_ = LaunchSizes(c, n.operand(kQ).type());
    k_ = LaunchSizes(c, n.operand(kK).type());
    v_ = LaunchSizes(c, n.operand(kV).type());
    slots_ = std::max(1, sdk::host().core->num_threads());
  }

  std::string name() const override { return std::string("cpu.attention_backward.") + gemm_.name; }
  uint64_t strided_inputs() const override { return ~((uint64_t{1} << kLse) | (uint64_t{1} << kDelta)); }
  bool has_workspace() const override { return true; }
  int64_t workspace(const int64_t* d) override {
    const int rank = static_cast<int>(q_.dims.size());
    BackwardSizes s;
    s.queries = q_.at(rank - 2, d), s.depth = q_.at(rank - 1, d);
    s.keys = k_.at(rank - 2, d), s.values = v_.at(rank - 1, d);
    return padded(slots_ * space_of(s).total * 4, 64);
  }

  void launch(const tsr_launch& l) override {
    const tsr_tensor &q = l.inputs[kQ], &k = l.inputs[kK];
    const uint32_t rank = q.rank;
    BackwardSizes s;
    for (uint32_t i = 0; i + 2 < rank; ++i) s.heads *= q.sizes[i], s.key_heads *= k.sizes[i];
    s.queries = q.sizes[rank - 2], s.depth = q.sizes[rank - 1];
    s.keys = k.sizes[rank - 2], s.values = l.inputs[kV].sizes[rank - 1];
    if (s.key_heads == 0) return;
    const BackwardSpace space = space_of(s);
    const double work = 2.0 * static_cast<double>(s.heads * s.queries) * static_cast<double>(s.keys) *
                        static_cast<double>(3 * s.depth + 2 * s.values);
    const int64_t slots = std::min<int64_t>(slots_, sdk::host().core->num_threads()),
                  used = std::min<int64_t>({slots, s.key_heads, static_cast<int64_t>(work / 2e6) + 1});
    Shares shares(s.key_heads, used);
    sdk::parallel(used, 1, [&](int64_t begin, int64_t end) {
      if (gemm_.begin) gemm_.begin();
      for (int64_t slot = begin; slot < end; ++slot)
        for (int64_t u, to; shares.take(slot, &u, &to);)
          KeyHead{*this, l, s, space, static_cast<float*>(l.workspace) + slot * space.total}.run(u);
      if (gemm_.end) gemm_.end();
    });
  }

 private:
  BackwardSpace space_of(const BackwardSizes& s) const { return {s, gemm_, mask_ == MaskKind::kAdded}; }

  // One head of keys and values, and the heads of queries that share it.
  struct KeyHead {
    const AttentionBackwardKernel& kernel;
    const tsr_launch& l;
    const BackwardSizes& s;
    const BackwardSpace& space;
    float* const at;

    const GemmIsa& gemm() const { return kernel.gemm_; }
    int width() const { return kernel.gemm_.nr; }

    void run(int64_t key_head) const {
      const int64_t sharing = s.heads / s.key_heads;
      const tsr_tensor& q = l.inputs[kQ];
      const HeadMatrix k = matrix_of_head(l.inputs[kK], q, key_head * sharing),
                       v = matrix_of_head(l.inputs[kV], q, key_head * sharing);
      for (int64_t j = 0; j < s.keys; j += kKeysAtOnce) {
        const int64_t n = std::min(kKeysAtOnce, s.keys - j);
        pack_head_rows(gemm(), k.at(j), k.dtype, n, k.row, k.col, s.depth, at + space.keys + j * s.depth);
        pack_head_rows(gemm(), v.at(j), v.dtype, n, v.row, v.col, s.values, at + space.values + j * s.values);
        pack_head_rows(gemm(), k.at(j), k.dtype, s.depth, k.col, k.row, n, at + space.transposed_keys + j * s.depth);
      }
      std::fill_n(at + space.dk, s.keys * space.dk_row, 0.0f);
      std::fill_n(at + space.dv, s.keys * space.dv_row, 0.0f);
      for (int64_t head = key_head * sharing; head < (key_head + 1) * sharing; ++head)
        for (int64_t query = 0; query < s.queries; query += width()) panel(head, query);
      store(at + space.dk, space.dk_row, l.outputs[1], key_head, s.depth);
      store(at + space.dv, space.dv_row, l.outputs[2], key_head, s.values);
    }

    // Rows of a result from its sums, rounded once.
    void store(const float* sums, int64_t row, const tsr_tensor& out, int64_t key_head, int64_t columns) const {
      char* to = static_cast<char*>(out.data) + key_head * s.keys * columns * bytes_of_dtype(out.dtype);
      for (int64_t i = 0; i < s.keys; ++i)
        for (int64_t c = 0; c < columns; c += width()) {
          StoreArgs a{};
          a.sums = sums + i * row + c, a.ld = row;
          a.rows = 1, a.cols = static_cast<int>(std::min<int64_t>(width(), columns - c));
          a.out = to + (i * columns + c) * bytes_of_dtype(out.dtype);
          a.dtype = out.dtype, a.out_ld = columns;
          gemm().store(a, FinishArgs{});
        }
    }

    // The transposed panel: rows [first, first + rows) as the depth of a product, its columns in panels.
    void pack_turned(const HeadMatrix& m, int64_t first, int rows, int64_t columns, float* to) const {
      for (int64_t c = 0; c < columns; c += width())
        pack_head_panel(gemm(), {m.at(first), m.dtype, m.col, m.row}, c,
                        static_cast<int>(std::min<int64_t>(width(), columns - c)), rows, to + c * rows);
    }

    // sums[key][column] += left[query][key] * right[query][column].
    void add_products(const float* from, int64_t keys, int queries, const float* right, int64_t columns, float* sums,
                      int64_t row) const {
      float* const left = at + space.left;
      pack_head_rows(gemm(), reinterpret_cast<const char*>(from), TSR_F32, keys, width(), 1, queries, left);
      const HeadTiles tiles(keys, gemm().mr);
      for (int64_t c = 0; c < columns; c += width())
        for (int64_t t = 0; t < tiles.count; ++t) {
          float* const to = sums + tiles.first(t) * row + c;
          gemm().micro[tiles.height(t)].part(static_cast<int>(std::min<int64_t>(width(), columns - c)), width())(
              queries, left + tiles.first(t) * queries, right + c * queries, to, row, true, Prefetch::only(right, 0, to));
        }
    }

    void panel(int64_t head, int64_t query) const {
      const tsr_tensor& q = l.inputs[kQ];
      const HeadMatrix oq = matrix_of_head(q, q, head), ody = matrix_of_head(l.inputs[kDy], q, head);
      const int queries = static_cast<int>(std::min<int64_t>(width(), s.queries - query));
      float *const q_panel = at + space.queries_panel, *const dy_panel = at + space.dy_panel,
                   *const weights = at + space.weights, *const gradients = at + space.gradients, *const dq = at + space.dq;
      pack_head_panel(gemm(), oq, query, queries, s.depth, q_panel);
      pack_head_panel(gemm(), ody, query, queries, s.values, dy_panel);
      pack_turned(oq, query, queries, s.depth, at + space.queries_panels);
      pack_turned(ody, query, queries, s.values, at + space.dy_panels);
      float *const lse = at + space.rows, *const delta = lse + width(), *const ones = delta + width();
      const auto read = [&](Operand from, float* to) {
        std::fill_n(to, width(), 0.0f);
        const float* const row = static_cast<const float*>(l.inputs[from].data) + head * s.queries + query;
        std::copy_n(row, queries, to);
      };
      read(kLse, lse);
      read(kDelta, delta);
      std::fill_n(ones, width(), 1.0f);
      std::fill_n(dq, s.depth * width(), 0.0f);

      WeighBackwardArgs a{};
      a.lse = lse, a.delta = delta, a.gradients = gradients;
      a.w.scores = weights;
      a.w.width = width(), a.w.queries = queries;
      a.w.scale = static_cast<float>(kernel.scale_ != 0 ? kernel.scale_ : 1.0 / std::sqrt(static_cast<double>(s.depth)));
      const HeadTiles depth_tiles(s.depth, gemm().mr);
      const int64_t seen = kernel.causal_ ? std::min(s.keys, query + width()) : s.keys;
      for (int64_t j = 0; j < seen; j += kKeysAtOnce) {
        const int64_t all = std::min(kKeysAtOnce, s.keys - j), n = std::min(all, seen - j);
        const HeadTiles tiles(all, gemm().mr);
        for (int64_t t = 0; t < tiles.count && tiles.first(t) < n; ++t) {
          const auto micro = gemm().micro[tiles.height(t)].part(queries, width());
          float *const w = weights + tiles.first(t) * width(), *const g = gradients + tiles.first(t) * width();
          micro(s.depth, at + space.keys + (j + tiles.first(t)) * s.depth, q_panel, w, width(), false,
                Prefetch::only(q_panel, 0, w));
          micro(s.values, at + space.values + (j + tiles.first(t)) * s.values, dy_panel, g, width(), false,
                Prefetch::only(dy_panel, 0, g));
        }
        a.w.keys = n;
        if (kernel.mask_ != MaskKind::kNone)
          set_mask(gemm(), kernel.mask_, mask_of_head(l.inputs[kMask], q, head), query, queries, j, n, at + space.mask, a.w);
        a.w.seen = kernel.causal_ ? query - j + 1 : std::numeric_limits<int32_t>::max();
        by_isa(kernel.isa_, weigh_backward_baseline, weigh_backward_avx2, weigh_backward_avx512)(a);
        for (int64_t t = 0; t < depth_tiles.count; ++t) {
          float* const to = dq + depth_tiles.first(t) * width();
          gemm().micro[depth_tiles.height(t)].part(queries, width())(
              n, at + space.transposed_keys + j * s.depth + depth_tiles.first(t) * all, gradients, to, width(), true,
              Prefetch::only(gradients, 0, to));
        }
        add_products(gradients, n, queries, at + space.queries_panels, s.depth, at + space.dk + j * space.dk_row, space.dk_row);
        add_products(weights, n, queries, at + space.dy_panels, s.values, at + space.dv + j * space.dv_row, space.dv_row);
      }
      const tsr_tensor& out = l.outputs[0];
      const AttendedArgs stored{
          dq,        s.depth, width(),
          queries,   ones,    static_cast<char*>(out.data) + (head * s.queries + query) * s.depth * bytes_of_dtype(out.dtype),
          out.dtype, s.depth, Blind::kNaN};
      by_isa(kernel.isa_, store_attended_baseline, store_attended_avx2, store_attended_avx512)(stored);
    }
  };

  const Isa& isa_;
  const GemmIsa& gemm_;
  bool causal_ = false;
  MaskKind mask_ = MaskKind::kNone;
  double scale_ = 0;
  LaunchSizes q_, k_, v_;
  int slots_ = 1;
};

}  // namespace

std::unique_ptr<sdk::Kernel> make_attention_backward(const sdk::Compile& c, const Isa& isa) {
  return std::make_unique<AttentionBackwardKernel>(c, isa);
}

}  // namespace cpu
