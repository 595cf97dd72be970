// SPDX-License-Identifier: Apache-2.0
// The loop nest of a contraction. Dims that do not merge into one stride become outer loops, so no operand is ever copied
// whole: f32 goes to the block product as it lies in memory, other dtypes are converted block by block on the stack.
#include <algorithm>
#include <cstring>

#include "block_product.hpp"
#include "matmul.hpp"
#include "onednn.hpp"

namespace eager {
namespace {

// The innermost dim of a nest, and the outer ones flattened.
template <int N>
struct Split {
  const Nest<N>& nest;
  int64_t inner = 1, outer = 1;
  int64_t step[N] = {};
  explicit Split(const Nest<N>& n) : nest(n) {
    if (n.rank > 0) {
      inner = n.sizes[n.rank - 1];
      for (int k = 0; k < N; ++k) step[k] = n.strides[k][n.rank - 1];
      outer = inner == 0 ? 0 : n.total() / inner;
    }
  }
  void at(int64_t i, int64_t (&out)[N]) const {
    if (nest.rank > 1) return nest.offsets(i, out, 1);
    for (int64_t& o : out) o = 0;
  }
};

struct Plan {
  const Isa& isa;
  const Contraction& c;
  Split<2> k;
  Split<1> m, n;
  int64_t total_m, total_n;
  int64_t m_block, n_block;  // of the inner dims
};

// ---- f32 in place

void f32_block(const Plan& p, const float* a, const float* b, float* out, int64_t m, int64_t n, const float* bias) {
  const bool dnn = p.isa.onednn && p.total_m > 4;
  for (int64_t ko = 0; ko < p.k.outer; ++ko) {
    int64_t at[2];
    p.k.at(ko, at);
    GemmArgs g{};
    g.m = m, g.n = n, g.k = p.k.inner;
    g.a = a + at[0], g.a_m = p.m.step[0], g.a_k = p.k.step[0];
    g.b = b + at[1], g.b_k = p.k.step[1], g.b_n = p.n.step[0];
    g.c = out, g.c_m = p.total_n;
    g.accumulate = ko > 0;
    g.packed = p.total_m > 4;
    const float* added = ko + 1 == p.k.outer ? bias : nullptr;
    if (dnn && dnn_sgemm(g)) {
      if (added)
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) out[i * p.total_n + j] += added[j];
      continue;
    }
    g.bias = added;
    p.isa.gemm(g);
  }
}

// ---- bf16 through oneDNN: whole blocks, summed in f32 and rounded once

struct Bf16Products {
  const DnnProduct* at[2][2] = {};  // [full or last rows][full or last columns]
};

// Makes the primitives for all blocks of the plan; false: oneDNN does not take one of them.
bool bf16_products(const Plan& p, Bf16Products& out) {
  const Contraction& c = p.c;
  if (!p.isa.onednn || c.a.dtype != TSR_BF16 || c.b.dtype != TSR_BF16 || p.k.outer != 1 ||
      (c.out_dtype != TSR_BF16 && c.out_dtype != TSR_F32))
    return false;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j) {
      const int64_t m = i == 0 ? std::min(p.m_block, p.m.inner) : p.m.inner % p.m_block;
      const int64_t n = j == 0 ? std::min(p.n_block, p.n.inner) : p.n.inner % p.n_block;
      if (m == 0 || n == 0) continue;
      DnnProductKey key;
      std::memset(&key, 0, sizeof key);
      key.m = m, key.n = n, key.k = p.k.inner;
      key.a_m = p.m.inner == 1 ? p.k.inner : p.m.step[0], key.a_k = p.k.inner == 1 ? 1 : p.k.step[0];
      key.b_k = p.k.inner == 1 ? p.n.inner : p.k.step[1], key.b_n = p.n.inner == 1 ? 1 : p.n.step[0];
      key.c_m = p.total_n;
      key.f32_out = c.out_dtype == TSR_F32;
      out.at[i][j] = dnn_product(key);
      if (!out.at[i][j]) return false;
    }
  return true;
}

void add_bias(const Isa& isa, const Contraction& c, int64_t index, int64_t column, int64_t n) {
  alignas(64) float sum[kTile], added[kTile];
  for (int64_t j = 0; j < n; j += kTile) {
    const int64_t m = std::min(kTile, n - j);
    load_run(isa, c.out_dtype, c.out, index + j, 1, m, sum);
    load_run(isa, c.bias->dtype, c.bias->data, (column + j) * c.bias->strides[0], c.bias->strides[0], m, added);
    for (int64_t i = 0; i < m; ++i) sum[i] += added[i];
    store_run(isa, c.out_dtype, c.out, index + j, m, sum);
  }
}

// ---- other types, through blocks on the stack

constexpr int64_t kM = kBlockM, kN = kBlockN, kK = kBlockK;

// Elements [r][c] of a rows x cols block, converted to T. Reads along the dim whose stride is 1 where there is one.
template <class T>
void load_block(const Isa& isa, const View& v, int64_t offset, int64_t row_step, int64_t col_step, int64_t rows, int64_t cols,
                T* dst, int64_t dst_row) {
  const bool by_rows = col_step == 1 || row_step != 1;
  for (int64_t i = 0; i < (by_rows ? rows : cols); ++i) {
    if (by_rows)
      load_as_type(isa, v.dtype, v.data, offset + i * row_step, col_step, cols, dst + i * dst_row, 1);
    else
      load_as_type(isa, v.dtype, v.data, offset + i * col_step, row_step, rows, dst + i, dst_row);
  }
}

// Rounded or wrapped once to the result's dtype; with a bias, once before and once after adding it.
template <class T>
void store_row(const Isa& isa, const T* values, const Contraction& c, int64_t index, int64_t column, int64_t n) {
  store_as_type(isa, c.out_dtype, c.out, index, n, values);
  if (!c.bias) return;
  T sum[kN], added[kN];
  load_as_type(isa, c.out_dtype, c.out, index, 1, n, sum, 1);
  load_as_type(isa, c.bias->dtype, c.bias->data, column * c.bias->strides[0], c.bias->strides[0], n, added, 1);
  for (int64_t j = 0; j < n; ++j) sum[j] = add(sum[j], added[j]);
  store_as_type(isa, c.out_dtype, c.out, index, n, sum);
}

template <class T>
void block(const Plan& p, int64_t a_at, int64_t b_at, int64_t out_at, int64_t column, int64_t m, int64_t n) {
  alignas(64) T a[kM * kK], b[kK * kN], c[kM * kN];
  for (int64_t i = 0; i < m * kN; ++i) c[i] = T{};
  for (int64_t ko = 0; ko < p.k.outer; ++ko) {
    int64_t at[2];
    p.k.at(ko, at);
    for (int64_t k0 = 0; k0 < p.k.inner; k0 += kK) {
      const int64_t k = std::min(kK, p.k.inner - k0);
      load_block(p.isa, p.c.a, a_at + at[0] + k0 * p.k.step[0], p.m.step[0], p.k.step[0], m, k, a, kK);
      load_block(p.isa, p.c.b, b_at + at[1] + k0 * p.k.step[1], p.k.step[1], p.n.step[0], k, n, b, kN);
      multiply_block(p.isa, a, b, c, m, n, k);
    }
  }
  for (int64_t i = 0; i < m; ++i) store_row(p.isa, c + i * kN, p.c, out_at + i * p.total_n, column, n);
}

}  // namespace

void contract(const Isa& isa, const Contraction& c) {
  Plan p{isa, c, Split<2>(c.k), Split<1>(c.m), Split<1>(c.n), c.m.total(), c.n.total(), 0, 0};
  const int64_t batches = c.batch.total();
  if (batches * p.total_m * p.total_n == 0) return;
  if (c.k.total() == 0) p.k.outer = 0;
  // What products accumulate in: the floats' compute type; for integers the result's, wrapping.
  Comp acc = comp_of(c.a.dtype);
  if (acc == Comp::I32 || acc == Comp::I64 || acc == Comp::U64) acc = comp_of(c.out_dtype);
  bool direct = c.a.dtype == TSR_F32 && c.b.dtype == TSR_F32 && c.out_dtype == TSR_F32 && p.k.outer > 0;
  if (c.bias && c.bias->strides[0] != 1 && c.bias->sizes[0] != 1) direct = false;

  const auto pieces = [](int64_t size, int64_t piece) { return (size + piece - 1) / piece; };
  const auto blocks = [&] { return batches * pieces(p.m.inner, p.m_block) * pieces(p.n.inner, p.n_block); };
  // Blocks for oneDNN are a function of the sizes alone: large, but at least a handful of them.
  p.m_block = p.n_block = 512;
  while (blocks() < 8 && p.n_block > 128) p.n_block /= 2;
  while (blocks() < 8 && p.m_block > 64) p.m_block /= 2;
  Bf16Products products;
  const bool bf16 = bf16_products(p, products);
  if (!bf16 && !(direct && isa.onednn && p.total_m > 4)) {
    p.n_block = direct ? 128 : kN;
    p.m_block = direct ? 448 : kM;
  }
  if (direct && !isa.onednn) {  // enough tasks for every thread, without changing what a task computes per element
    const int64_t want = 2 * host_threads();
    while (p.m_block > 112 && blocks() < want) p.m_block /= 2;
    while (p.n_block > 64 && blocks() < want) p.n_block /= 2;
  }
  const int64_t mb = pieces(p.m.inner, p.m_block), nb = pieces(p.n.inner, p.n_block);
  const int64_t per_batch = p.m.outer * p.n.outer * mb * nb;
  const double flops = 2.0 * static_cast<double>(std::min(p.m_block, p.m.inner)) *
                       static_cast<double>(std::min(p.n_block, p.n.inner)) * static_cast<double>(c.k.total() + 1);
  // About 20 us of work per task at least. Packed results are stored by one thread: blocks may share a byte.
  const int64_t grain = tessera::is_packed(c.out_dtype) ? INT64_MAX : std::max<int64_t>(1, static_cast<int64_t>(1e6 / flops));
  sdk::parallel(batches * per_batch, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      int64_t rest = t;
      const int64_t i = rest % mb * p.m_block;
      rest /= mb;
      const int64_t j = rest % nb * p.n_block;
      rest /= nb;
      const int64_t no = rest % p.n.outer;
      rest /= p.n.outer;
      const int64_t mo = rest % p.m.outer, batch = rest / p.m.outer;
      const int64_t m = std::min(p.m_block, p.m.inner - i), n = std::min(p.n_block, p.n.inner - j);
      int64_t at[2], am[1], bn[1];
      c.batch.offsets(batch, at);
      p.m.at(mo, am);
      p.n.at(no, bn);
      const int64_t a_at = c.a.offset + at[0] + am[0] + i * p.m.step[0];
      const int64_t b_at = c.b.offset + at[1] + bn[0] + j * p.n.step[0];
      const int64_t column = no * p.n.inner + j;
      const int64_t out_at = (batch * p.total_m + mo * p.m.inner + i) * p.total_n + column;
      if (direct) {
        const float* bias = c.bias ? static_cast<const float*>(c.bias->data) + column : nullptr;
        f32_block(p, static_cast<const float*>(c.a.data) + a_at, static_cast<const float*>(c.b.data) + b_at,
                  static_cast<float*>(c.out) + out_at, m, n, bias);
        continue;
      }
      if (bf16) {
        dnn_run(*products.at[m < std::min(p.m_block, p.m.inner)][n < std::min(p.n_block, p.n.inner)],
                static_cast<const uint16_t*>(c.a.data) + a_at, static_cast<const uint16_t*>(c.b.data) + b_at,
                static_cast<char*>(c.out) + out_at * element_bytes(c.out_dtype));
        if (c.bias)
          for (int64_t r = 0; r < m; ++r) add_bias(isa, c, out_at + r * p.total_n, column, n);
        continue;
      }
      with_accumulator(acc, [&](auto zero) { block<decltype(zero)>(p, a_at, b_at, out_at, column, m, n); });
    }
  });
}

}  // namespace eager
