// SPDX-License-Identifier: Apache-2.0
#include "attention/attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "attention/form.hpp"
#include "attention/panels.hpp"
#include "attention/score_mod.hpp"
#include "attention/tables.hpp"
#include "finish.hpp"
#include "gemm/gemm.hpp"
#include "shares.hpp"
#include "strided.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

namespace {

constexpr int64_t kPartsPerSlot = 4;

int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }

struct Sizes {
  int64_t heads = 1, queries = 0, keys = 0, depth = 0, values = 0;
};

// What one thread works in, floats behind each other.
struct Space {
  int64_t keys, values, queries, weights, mask, sums, row, finite,
      total;  // where each begins; row: [3][width], finite: [blocks of keys]
  // Floats from the mask of one panel of queries to that of the next; 0: there is room for one, which is made again and again.
  int64_t mask_step = 0;
  // `computed`: the mask comes from a program, which the heads that it is the same for need not run again where masks of all
  // panels find room.
  Space(const Sizes& s, int width, bool masked, bool computed) {
    constexpr int64_t kMostMasks = 128 << 10;  // floats: half of a second-level cache
    const int64_t panels = (s.queries + width - 1) / width;
    if (computed && s.keys <= kKeysAtOnce && panels <= 64 && panels * s.keys * width <= kMostMasks) mask_step = s.keys * width;
    int64_t at = 0;
    const auto take = [&](int64_t floats) {
      const int64_t here = at;
      at += round_up(floats + 32, 16);  // packing writes up to a vector behind the end
      return here;
    };
    keys = take(s.keys * s.depth);
    values = take(s.keys * s.values);
    queries = take(s.depth * width);
    weights = take(std::min(s.keys, kKeysAtOnce) * width);
    mask = take(!masked ? 0 : mask_step > 0 ? panels * mask_step : std::min(s.keys, kKeysAtOnce) * width);
    sums = take(s.values * width);
    row = take(3 * width);
    finite = take((s.keys + kKeysAtOnce - 1) / kKeysAtOnce);
    total = at;
  }
};

// An operand with its dimensions in the order [*batch, rows, columns].
struct Transposed {
  int64_t sizes[kMaxRank], strides[kMaxRank];
  tsr_tensor t;
};

class AttentionKernel final : public CopyingKernel {
 public:
  AttentionKernel(const sdk::Compile& c, const Isa& isa)
      : isa_(isa), gemm_(*gemm_kernels(isa, TSR_F32, TSR_F32)), whole_(true) {
    read(c.node());
    for (uint32_t i = 0; i < 4; ++i) at_[i] = i;
    bind(c, c.node().operand(0), c.node().operand(1), c.node().operand(2));
  }

  // The form has nodes unless there is no module.
  AttentionKernel(const sdk::Compile& c, const Isa& isa, const AttentionForm& form, std::optional<ScoreMod> mod)
      : isa_(isa), gemm_(*gemm_kernels(isa, TSR_F32, TSR_F32)), whole_(static_cast<bool>(form.whole)), mod_(std::move(mod)) {
    at_[0] = outer_operand(c.node(), form.queries);
    at_[1] = outer_operand(c.node(), form.keys);
    at_[2] = outer_operand(c.node(), form.values);
    if (whole_) {
      read(form.whole);
      computes_mask_ = mask_ != MaskKind::kNone;
    } else {
      scale_ = 1;
      blind_ = form.blind;
      scores_axes_ = form.of_scores, results_axes_ = form.of_results;
    }
    bind(c, form.queries, form.keys, form.values);
  }

  std::string name() const override { return "cpu." + (mod_ ? mod_->name() : std::string("attention")) + "." + gemm_.name; }
  int64_t workspace_of(const int64_t* d, uint64_t strided) override {
    Sizes s;
    const int rank = static_cast<int>(q_.dims.size());
    if (whole_) {
      s.queries = q_.at(rank - 2, d), s.depth = q_.at(rank - 1, d);
      s.keys = k_.at(rank - 2, d), s.values = v_.at(rank - 1, d);
    } else {
      s.queries = q_.at(scores_axes_.m[0], d), s.depth = q_.at(scores_axes_.k[0].first, d);
      s.keys = k_.at(scores_axes_.n[0], d), s.values = v_.at(results_axes_.n[0], d);
    }
    return space_bytes(s) + (mod_ ? mod_->workspace_of(d, strided) : 0);
  }

  void launch(const tsr_launch& l) override {
    Transposed transposed[3];
    Call call{l, l.inputs[at_[0]], l.inputs[at_[1]], l.inputs[at_[2]], nullptr};
    if (!whole_) {
      transpose(call.q, scores_axes_, true, scores_axes_.m[0], scores_axes_.k[0].first, &call.k, &transposed[0]);
      transpose(call.k, scores_axes_, false, scores_axes_.n[0], scores_axes_.k[0].second, &call.q, &transposed[1]);
      transpose(call.v, results_axes_, false, results_axes_.k[0].second, results_axes_.n[0], nullptr, &transposed[2]);
      call.q = transposed[0].t, call.k = transposed[1].t, call.v = transposed[2].t;
    }
    const tsr_tensor &q = call.q, &k = call.k, &out = l.outputs[0];
    const uint32_t rank = q.rank;
    Sizes s;
    for (uint32_t i = 0; i + 2 < rank; ++i) s.heads *= q.sizes[i];
    s.queries = q.sizes[rank - 2], s.depth = q.sizes[rank - 1];
    s.keys = k.sizes[rank - 2], s.values = out.sizes[out.rank - 1];
    if (s.heads * s.queries == 0 || (s.values == 0 && !gives_lse_)) return;
    const Space space(s, gemm_.nr, mask_ == MaskKind::kAdded || computes_mask_, computes_mask_);
    ScoreMod::Launch mod;
    if (mod_) {
      mod_->begin(l, static_cast<char*>(l.workspace) + space_bytes(s), &mod);
      call.mod = &mod;
    }
    // A head, or where there are few of them a part of its queries: whoever takes a part packs the keys and values for it.
    const int64_t panels = (s.queries + gemm_.nr - 1) / gemm_.nr,
                  slots = std::min<int64_t>(slots_, sdk::host().core->num_threads()),
                  parts = slots == 1 ? 1 : std::clamp<int64_t>((kPartsPerSlot * slots + s.heads - 1) / s.heads, 1, panels);
    const double work =
        2.0 * static_cast<double>(s.heads * s.queries) * static_cast<double>(s.keys) * static_cast<double>(s.depth + s.values);
    const int64_t used = std::min<int64_t>({slots, s.heads * parts, static_cast<int64_t>(work / 2e6) + 1});
    Shares shares(s.heads * parts, used);
    sdk::parallel(used, 1, [&](int64_t begin, int64_t end) {
      if (gemm_.begin) gemm_.begin();
      for (int64_t slot = begin; slot < end; ++slot) {
        Masks masks;
        for (int64_t u, to; shares.take(slot, &u, &to);)
          part(call, s, space, u / parts, panels * (u % parts) / parts, panels * (u % parts + 1) / parts,
               static_cast<float*>(l.workspace) + slot * space.total, masks);
      }
      if (gemm_.end) gemm_.end();
    });
    if (mod_) mod_->end(mod);
  }

 private:
  struct Call {
    const tsr_launch& l;
    tsr_tensor q, k, v;
    ScoreMod::Launch* mod;
  };

  // Computed masks that a thread has: of which place in the dimensions before queries and keys, and of which panels of queries.
  struct Masks {
    int64_t place = -1;
    uint64_t panels = 0;
    // Whether that of a panel is there; from now on it is.
    bool had(int64_t at, int64_t panel) {
      if (place != at) place = at, panels = 0;
      const uint64_t bit = uint64_t{1} << panel;
      const bool had = panels & bit;
      panels |= bit;
      return had;
    }
  };

  void read(const sdk::Node& attention) {
    gives_lse_ = attention.num_results() > 1;
    scale_ = attention.attr("scale").as_float();
    causal_ = attention.attr("causal").as_bool();
    if (attention.has_operand(3)) mask_ = attention.operand(3).type().dtype() == TSR_BOOL ? MaskKind::kBool : MaskKind::kAdded;
  }
  void bind(const sdk::Compile& c, const sdk::Value& queries, const sdk::Value& keys, const sdk::Value& values) {
    q_ = LaunchSizes(c, queries.type());
    k_ = LaunchSizes(c, keys.type());
    v_ = LaunchSizes(c, values.type());
    slots_ = std::max(1, sdk::host().core->num_threads());
  }
  int64_t space_bytes(const Sizes& s) const {
    const int64_t bytes = slots_ * Space(s, gemm_.nr, mask_ == MaskKind::kAdded || computes_mask_, computes_mask_).total * 4;
    return (bytes + 63) / 64 * 64;
  }

  // `t` as [*batch, row, column]. A batch dimension that it lacks, or has with size 1, has the size of the other operand and
  // the stride 0.
  static void transpose(const tsr_tensor& t, const ProductAxes& axes, bool left, int row, int column, const tsr_tensor* other,
                        Transposed* out) {
    const auto put = [&](size_t d, int axis) {
      out->sizes[d] = axis < 0 ? 1 : t.sizes[axis];
      out->strides[d] = axis < 0 || t.sizes[axis] == 1 ? 0 : t.strides[axis];
    };
    size_t d = 0;
    for (const auto& [x, y] : axes.batch) {
      put(d, left ? x : y);
      const int there = left ? y : x;
      if (other && there >= 0 && out->sizes[d] == 1) out->sizes[d] = other->sizes[there];
      ++d;
    }
    put(d++, row);
    put(d++, column);
    out->t = t;
    out->t.rank = static_cast<uint32_t>(d);
    out->t.sizes = out->sizes, out->t.strides = out->strides;
  }

  // Whether a program may have hidden all keys of a block from all queries of a panel.
  bool hides() const { return mod_ && !computes_mask_; }

  // The mask that a group computes: [key][width].
  void computed_mask(float* from, int width, WeighArgs& w) const {
    if (mask_ == MaskKind::kBool) {
      w.mask_bool = reinterpret_cast<const uint8_t*>(from);
      w.mask_row = 1, w.mask_col = width;
    } else {
      w.mask_add = from, w.mask_step = width;
      w.mask_by_query = true;
    }
  }

  // Panels [first, last) of queries of one head.
  void part(const Call& call, const Sizes& s, const Space& space, int64_t head, int64_t first, int64_t last, float* at,
            Masks& masks) const {
    const tsr_launch& l = call.l;
    const tsr_tensor& q = call.q;
    // The second product of a group may have other batch dimensions, in the same order: those of the result.
    const HeadMatrix oq = matrix_of_head(q, q, head), ok = matrix_of_head(call.k, q, head),
                     ov = matrix_of_head(call.v, whole_ ? q : l.outputs[0], head);
    const int width = gemm_.nr;
    // Keys that no query of this part sees are not looked at.
    const int64_t keys = causal_ ? std::min(s.keys, last * width) : s.keys;
    float *const packed_k = at + space.keys, *const packed_v = at + space.values, *const packed_q = at + space.queries;
    float *const weights = at + space.weights, *const sums = at + space.sums, *const finite = at + space.finite;
    for (int64_t j = 0; j < keys; j += kKeysAtOnce) {
      const int64_t n = std::min(kKeysAtOnce, keys - j);
      pack_head_rows(gemm_, ok.at(j), ok.dtype, n, ok.row, ok.col, s.depth, packed_k + j * s.depth);
      pack_head_rows(gemm_, ov.at(j), ov.dtype, s.values, ov.col, ov.row, n, packed_v + j * s.values);
      if (hides())
        finite[j / kKeysAtOnce] =
            by_isa(isa_, finite_baseline, finite_avx2, finite_avx512)(packed_v + j * s.values, n * s.values) ? 1.0f : 0.0f;
    }
    const HeadTiles value_tiles(s.values, gemm_.mr);
    const float scale = static_cast<float>(scale_ != 0 ? scale_ : 1.0 / std::sqrt(static_cast<double>(s.depth)));
    for (int64_t p = first; p < last; ++p) {
      const int64_t query = p * width;
      const int queries = static_cast<int>(std::min<int64_t>(width, s.queries - query));
      pack_head_panel(gemm_, oq, query, queries, s.depth, packed_q);
      WeighArgs w{};
      w.scores = weights;
      w.width = width, w.queries = queries;
      w.scale = scale;
      w.top = at + space.row, w.sum = w.top + width, w.correction = w.sum + width;
      std::fill_n(w.top, width, -std::numeric_limits<float>::infinity());
      std::fill_n(w.sum, width, 0.0f);
      std::fill_n(sums, s.values * width, 0.0f);
      const int64_t seen = causal_ ? std::min(keys, query + width) : keys;
      for (int64_t j = 0; j < seen; j += kKeysAtOnce) {
        const int64_t all = std::min(kKeysAtOnce, keys - j), n = std::min(all, seen - j);
        const HeadTiles tiles(all, gemm_.mr);
        for (int64_t t = 0; t < tiles.count && tiles.first(t) < n; ++t)
          gemm_.micro[tiles.height(t)].part(queries, width)(s.depth, packed_k + (j + tiles.first(t)) * s.depth, packed_q,
                                                            weights + tiles.first(t) * width, width, false,
                                                            Prefetch::only(packed_q, 0, weights));
        w.keys = n;
        float* const computed = at + space.mask + p * space.mask_step;
        if (mod_ && !(space.mask_step > 0 && masks.had(mod_->place(*call.mod, head), p)))
          mod_->apply(*call.mod, {head, query, queries, j, n, width}, computes_mask_ ? computed : weights);
        if (computes_mask_)
          computed_mask(computed, width, w);
        else if (mask_ != MaskKind::kNone)
          set_mask(gemm_, mask_, mask_of_head(l.inputs[at_[3]], q, head), query, queries, j, n, at + space.mask, w);
        if (hides() && finite[j / kKeysAtOnce] != 0 &&
            by_isa(isa_, hidden_baseline, hidden_avx2, hidden_avx512)(weights, n, width, queries))
          continue;
        w.seen = causal_ ? query - j + 1 : std::numeric_limits<int32_t>::max();
        by_isa(isa_, weigh_baseline, weigh_avx2, weigh_avx512)(w);
        if (j > 0) by_isa(isa_, correct_baseline, correct_avx2, correct_avx512)(sums, s.values, width, queries, w.correction);
        for (int64_t t = 0; t < value_tiles.count; ++t)
          gemm_.micro[value_tiles.height(t)].part(queries, width)(n, packed_v + j * s.values + value_tiles.first(t) * all,
                                                                  weights, sums + value_tiles.first(t) * width, width, j > 0,
                                                                  Prefetch::only(weights, 0, sums));
      }
      const tsr_tensor& out = l.outputs[0];
      const int64_t first_out = (head * s.queries + query) * s.values;
      const AttendedArgs a{sums,      s.values, width,
                           queries,   w.sum,    static_cast<char*>(out.data) + first_out * bytes_of_dtype(out.dtype),
                           out.dtype, s.values, blind_};
      by_isa(isa_, store_attended_baseline, store_attended_avx2, store_attended_avx512)(a);
      if (gives_lse_) {
        float* const lse = static_cast<float*>(l.outputs[1].data) + head * s.queries + query;
        for (int i = 0; i < queries; ++i) lse[i] = w.top[i] + std::log(w.sum[i]);
      }
    }
  }

  const Isa& isa_;
  const GemmIsa& gemm_;
  const bool whole_;  // the op, not two products
  bool causal_ = false, gives_lse_ = false;
  MaskKind mask_ = MaskKind::kNone;
  bool computes_mask_ = false;
  Blind blind_ = Blind::kZero;
  double scale_ = 0;
  uint32_t at_[4] = {};  // of the compiled node: queries, keys, values, mask
  ProductAxes scores_axes_, results_axes_;
  LaunchSizes q_, k_, v_;
  int slots_ = 1;
  std::optional<ScoreMod> mod_;
};

}  // namespace

bool is_attention(const sdk::Node& n) { return n.is("attention") || n.is("attention_lse") || n.is("attention_backward"); }

const char* refuse_attention(const sdk::Node& n) {
  const uint32_t q_at = n.is("attention_backward") ? 1 : 0, mask_at = q_at + 3;
  const auto taken = [](uint32_t dtype) { return dtype == TSR_F32 || dtype == TSR_BF16 || dtype == TSR_F16; };
  for (uint32_t i = 0; i < mask_at; ++i)
    if (!taken(n.operand(i).type().dtype())) return "cpu's attention takes f32, bf16 and f16";
  if (n.has_operand(mask_at) && n.operand(mask_at).type().dtype() != TSR_BOOL && !taken(n.operand(mask_at).type().dtype()))
    return "cpu's attention takes masks of bool, f32, bf16 and f16";
  const sdk::Type q = n.operand(q_at).type();
  if (q.rank() > static_cast<uint32_t>(kMaxRank)) return "cpu takes tensors of at most 32 dimensions";
  const tsr_dim queries = q.sizes()[q.rank() - 2];
  if (queries >= 0 && queries < kFewQueries) return "cpu's attention has queries in its lanes, and these are few";
  return nullptr;
}

std::unique_ptr<sdk::Kernel> make_attention(const sdk::Compile& c, const Isa& isa) {
  if (c.node().is("attention_backward")) return make_attention_backward(c, isa);
  return std::make_unique<AttentionKernel>(c, isa);
}

std::string refuse_attention_group(const sdk::Node& n, bool generates) {
  std::string why;
  const std::optional<AttentionForm> form = attention_form(n, &why);
  if (!form || form->piece.nodes.empty()) return why;
  if (!generates) return "cpu generates no code";
  try {
    check_score_mod(*form);
    return {};
  } catch (const kit::Unfit& u) {
    return u.why;
  }
}

namespace {

AttentionForm form_or_fail(const sdk::Compile& c) {
  std::string why;
  std::optional<AttentionForm> form = attention_form(c.node(), &why);
  if (!form) throw sdk::Error(TSR_BUG, "TSR-B005", "cpu was asked to compile a group that it does not claim: " + why);
  return *std::move(form);
}

}  // namespace

bool prepare_attention_group(const sdk::Compile& c, const kit::Device& device, Source* out) {
  const AttentionForm form = form_or_fail(c);
  if (form.piece.nodes.empty()) return false;
  *out = write_score_mod(form, device, c.relaxed(), /*log=*/true).source;
  return true;
}

std::unique_ptr<sdk::Kernel> make_attention_group(const sdk::Compile& c, const Isa& isa, const kit::Device& device,
                                                  Compiler& compiler) {
  const AttentionForm form = form_or_fail(c);
  std::optional<ScoreMod> mod;
  if (!form.piece.nodes.empty()) {
    WrittenScoreMod d = write_score_mod(form, device, c.relaxed(), /*log=*/false);
    ModulePtr module = compiler.find(d.source);
    if (!module) module = compiler.compile(d.source);
    mod.emplace(c, form, std::move(d), std::move(module));
  }
  return std::make_unique<AttentionKernel>(c, isa, form, std::move(mod));
}

}  // namespace cpu
