// SPDX-License-Identifier: Apache-2.0
// Attention: heads and blocks of query rows in parallel, each through the ISA's blocked kernel, which never stores the score
// matrix. f32 is read as it lies in memory; narrower floats are widened into the workspace; f64 has a plain loop over rows.
#include "attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace eager {
namespace {

constexpr int64_t kSlots = 64;  // f64: rows of scores that may be in work at once

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

struct Operand {
  View v;
  int64_t row = 0, col = 0;
  explicit Operand(const View& x) : v(x), row(x.strides[x.rank() - 2]), col(x.strides[x.rank() - 1]) {}
  // Offset of the head with the index `flat` over `batch` (the sizes of q); `share` query heads use one head of this operand.
  int64_t head(int64_t flat, const Dims& batch, int64_t share) const {
    int64_t at = v.offset;
    for (int d = batch.rank - 1; d >= 0; --d) {
      int64_t i = flat % batch[d];
      flat /= batch[d];
      if (d == batch.rank - 1) i /= share;
      at += i * v.strides[d];
    }
    return at;
  }
};

// x as dense f32 at `dst`.
View widened(const Isa& isa, const View& x, char* dst) {
  Nest<1> nest;
  for (int d = 0; d < x.rank(); ++d) nest.push(x.sizes[d], &x.strides[d]);
  const View out = dense_view(dst, TSR_F32, x.sizes);
  const int64_t total = x.elements();
  if (total == 0) return out;
  const int64_t inner = nest.rank > 0 ? nest.sizes[nest.rank - 1] : 1,
                step = nest.rank > 0 ? nest.strides[0][nest.rank - 1] : 1;
  sdk::parallel(total / inner, std::max<int64_t>(1, kGrain / inner), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t at[1];
      nest.offsets(i, at, nest.rank > 0 ? 1 : 0);
      load_run(isa, x.dtype, x.data, x.offset + at[0], step, inner, reinterpret_cast<float*>(dst) + i * inner);
    }
  });
  return out;
}

struct Problem {
  Dims batch;
  int64_t heads, rows, keys, head, value, share;
  Problem(const Dims& q, const Dims& k, const Dims& v) {
    for (int d = 0; d < q.rank - 2; ++d) batch.push(q[d]);
    heads = batch.product();
    rows = q[q.rank - 2];
    head = q[q.rank - 1];
    keys = k[k.rank - 2];
    value = v[v.rank - 1];
    share = batch.rank > 0 ? batch[batch.rank - 1] / std::max<int64_t>(1, k[k.rank - 3]) : 1;
    if (share < 1) share = 1;
  }
};

View broadcast_mask(const View& mask, const Problem& p) {
  Dims shape = p.batch;
  shape.push(p.rows), shape.push(p.keys);
  View m = mask;
  m.strides.rank = shape.rank;
  Dims strides;
  strides.rank = shape.rank;
  broadcast_strides(mask, shape, strides.v);
  m.sizes = shape;
  m.strides = strides;
  return m;
}

void attend_f32(const Isa& isa, const Problem& p, const View& q, const View& k, const View& v, const View* mask, bool causal,
                double scale, float* out) {
  const Operand oq(q), ok(k), ov(v);
  const int64_t blocks = (p.rows + kAttentionRows - 1) / kAttentionRows;
  const double flops = 2.0 * static_cast<double>(std::min(p.rows, kAttentionRows)) * static_cast<double>(p.keys) *
                       static_cast<double>(p.head + p.value);
  sdk::parallel(
      p.heads * blocks, std::max<int64_t>(1, static_cast<int64_t>(4e5 / (flops + 1))), [&](int64_t begin, int64_t end) {
        for (int64_t t = begin; t < end; ++t) {
          const int64_t head = t / blocks, first = t % blocks * kAttentionRows;
          AttentionArgs a{};
          a.q_rows = std::min(kAttentionRows, p.rows - first);
          a.kv_rows = p.keys;
          a.head = p.head, a.value = p.value;
          a.q = static_cast<const float*>(q.data) + oq.head(head, p.batch, 1) + first * oq.row, a.q_row = oq.row,
          a.q_col = oq.col;
          a.k = static_cast<const float*>(k.data) + ok.head(head, p.batch, p.share), a.k_row = ok.row, a.k_col = ok.col;
          a.v = static_cast<const float*>(v.data) + ov.head(head, p.batch, p.share), a.v_row = ov.row, a.v_col = ov.col;
          a.out = out + (head * p.rows + first) * p.value, a.out_row = p.value;
          if (mask) {
            const Operand om(*mask);
            const int64_t at = om.head(head, p.batch, 1) + first * om.row;
            if (mask->dtype == TSR_BOOL)
              a.mask_bool = static_cast<const uint8_t*>(mask->data) + at;
            else
              a.mask_add = static_cast<const float*>(mask->data) + at;
            a.mask_row = om.row, a.mask_col = om.col;
          }
          a.causal = causal;
          a.first_query = first;
          a.scale = static_cast<float>(scale);
          isa.attention(a);
        }
      });
}

void attend_f64(const Problem& p, const View& q, const View& k, const View& v, const View* mask, bool causal, double scale,
                double* out, double* space) {
  const Operand oq(q), ok(k), ov(v);
  const int64_t total = p.heads * p.rows, slots = std::min(total, kSlots);
  sdk::parallel(slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s)
      for (int64_t t = total * s / slots; t < total * (s + 1) / slots; ++t) {
        const int64_t head = t / p.rows, i = t % p.rows, keys = causal ? std::min(p.keys, i + 1) : p.keys;
        const double* rq = static_cast<const double*>(q.data) + oq.head(head, p.batch, 1) + i * oq.row;
        const double* hk = static_cast<const double*>(k.data) + ok.head(head, p.batch, p.share);
        const double* hv = static_cast<const double*>(v.data) + ov.head(head, p.batch, p.share);
        double* score = space + s * p.keys;
        double* o = out + t * p.value;
        double top = -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < keys; ++j) {
          double dot = 0;
          for (int64_t e = 0; e < p.head; ++e) dot += rq[e * oq.col] * hk[j * ok.row + e * ok.col];
          dot *= scale;
          if (mask) {
            const Operand om(*mask);
            const int64_t at = om.head(head, p.batch, 1) + i * om.row + j * om.col;
            if (mask->dtype == TSR_BOOL)
              dot = static_cast<const uint8_t*>(mask->data)[at] ? dot : -std::numeric_limits<double>::infinity();
            else
              dot += static_cast<const double*>(mask->data)[at];
          }
          score[j] = dot;
          top = top != top ? top : dot > top || dot != dot ? dot : top;
        }
        double sum = 0;
        const bool none = top == -std::numeric_limits<double>::infinity();
        for (int64_t j = 0; j < keys; ++j) sum += score[j] = none ? 0.0 : std::exp(score[j] - top);
        for (int64_t c = 0; c < p.value; ++c) o[c] = 0;
        if (none) continue;
        for (int64_t j = 0; j < keys; ++j) {
          const double w = score[j] / sum;
          for (int64_t c = 0; c < p.value; ++c) o[c] += w * hv[j * ov.row + c * ov.col];
        }
      }
  });
}

}  // namespace

KernelPtr make_attention(const Build& b, int) {
  const bool has_mask = b.has(3), causal = b.flag("causal");
  const double given = b.number("scale");
  const uint32_t dtype = b.operand(0).dtype();
  const bool wide_mask = has_mask && b.operand(3).dtype() != TSR_BOOL;
  std::vector<LaunchDims> shapes = {b.shape(b.operand(0)), b.shape(b.operand(1)), b.shape(b.operand(2)), b.shape(b.result())};
  if (wide_mask) shapes.push_back(b.shape(b.operand(3)));
  return make_kernel(
      b,
      [has_mask, wide_mask, causal, given, isa = b.isa](const tsr_launch& l) {
        View x[3] = {View(l.inputs[0]), View(l.inputs[1]), View(l.inputs[2])};
        const Problem p(x[0].sizes, x[1].sizes, x[2].sizes);
        const tsr_tensor& out = l.outputs[0];
        if (elements(out) == 0) return;
        const double scale = given != 0 ? given : 1.0 / std::sqrt(static_cast<double>(p.head));
        View mask;
        if (has_mask) mask = View(l.inputs[3]);
        if (out.dtype == TSR_F64) {
          if (has_mask) mask = broadcast_mask(mask, p);
          return attend_f64(p, x[0], x[1], x[2], has_mask ? &mask : nullptr, causal, scale, static_cast<double*>(out.data),
                            static_cast<double*>(l.workspace));
        }
        float* result = static_cast<float*>(out.data);
        if (out.dtype != TSR_F32) {
          char* space = static_cast<char*>(l.workspace);
          for (View& v : x) {
            v = widened(*isa, v, space);
            space += padded(v.elements() * 4);
          }
          result = reinterpret_cast<float*>(space);
          space += padded(elements(out) * 4);
          if (wide_mask) mask = widened(*isa, mask, space);
        }
        if (has_mask) mask = broadcast_mask(mask, p);
        attend_f32(*isa, p, x[0], x[1], x[2], has_mask ? &mask : nullptr, causal, scale, result);
        if (out.dtype == TSR_F32) return;
        const int64_t n = elements(out), tiles = (n + kTile - 1) / kTile;
        sdk::parallel(tiles, kGrain / kTile, [&](int64_t begin, int64_t end) {
          const int64_t from = begin * kTile;
          store_run(*isa, out.dtype, out.data, from, std::min(n, end * kTile) - from, result + from);
        });
      },
      [shapes, dtype](const int64_t* dims) -> int64_t {
        const Dims q = shapes[0].get(dims), k = shapes[1].get(dims), v = shapes[2].get(dims);
        if (dtype == TSR_F64) {
          const Problem p(q, k, v);
          return std::min(p.heads * p.rows, kSlots) * p.keys * 8;
        }
        if (dtype == TSR_F32) return 0;
        int64_t bytes = 0;
        for (const LaunchDims& s : shapes) bytes += padded(s.get(dims).product() * 4);
        return bytes;
      });
}

}  // namespace eager
