// SPDX-License-Identifier: Apache-2.0
// What attention and its gradient share: heads as matrices in memory, and their rows in the packed forms of micro-kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "attention/tables.hpp"
#include "gemm/tables.hpp"
#include "jit/isa.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Keys between two corrections of what was summed before (Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018): their weights for a panel of queries, 64 KiB at 32 queries, stay in the second-level cache.
inline constexpr int64_t kKeysAtOnce = 512;

// Queries that one panel has at most, for arrays on the stack.
inline constexpr int kMostQueriesOfPanel = 64;

// n rows in tiles of nearly equal height, the higher ones first.
struct HeadTiles {
  int64_t count, base, extra;
  HeadTiles(int64_t n, int64_t most)
      : count((n + most - 1) / most), base(count ? n / count : 0), extra(count ? n % count : 0) {}
  int64_t first(int64_t t) const { return t * base + std::min(t, extra); }
  int height(int64_t t) const { return static_cast<int>(base + (t < extra ? 1 : 0)); }
};

inline int64_t bytes_of_dtype(uint32_t dtype) { return tessera::dtype_bits(dtype) / 8; }

// A matrix in memory; strides in elements.
struct HeadMatrix {
  const char* data;
  uint32_t dtype;
  int64_t row, col;
  const char* at(int64_t r) const { return data + r * row * bytes_of_dtype(dtype); }
};

// Of `t`, the matrix of the head with the index `flat` over the batch of q; `t` may have fewer heads along the last batch axis.
inline HeadMatrix matrix_of_head(const tsr_tensor& t, const tsr_tensor& q, int64_t flat) {
  HeadMatrix o{static_cast<const char*>(t.data), t.dtype, t.strides[t.rank - 2], t.strides[t.rank - 1]};
  for (int d = static_cast<int>(t.rank) - 3; d >= 0; --d) {
    int64_t i = flat % q.sizes[d];
    flat /= q.sizes[d];
    i /= std::max<int64_t>(1, q.sizes[d] / std::max<int64_t>(1, t.sizes[d]));
    o.data += i * t.strides[d] * bytes_of_dtype(t.dtype);
  }
  return o;
}

// The mask of that head: its element for query 0 and key 0, and its strides; where it has no such axis, or one of size 1, 0.
inline HeadMatrix mask_of_head(const tsr_tensor& m, const tsr_tensor& q, int64_t flat) {
  const auto stride = [&](int from_end) {
    const int d = static_cast<int>(m.rank) - from_end;
    return d < 0 || m.sizes[d] == 1 ? int64_t{0} : m.strides[d];
  };
  int64_t at = 0;
  for (int d = static_cast<int>(q.rank) - 3; d >= 0; --d) {
    at += flat % q.sizes[d] * stride(static_cast<int>(q.rank) - d);
    flat /= q.sizes[d];
  }
  return {static_cast<const char*>(m.data) + at * bytes_of_dtype(m.dtype), m.dtype, stride(2), stride(1)};
}

enum class MaskKind { kNone, kBool, kAdded };

// The mask of `queries` queries from `query` on and `keys` keys from `key` on. What is added goes to `to` as f32, [key][width],
// or [key] where it is the same for all queries: one by one, a vector of queries would be made of as many loads.
inline void set_mask(const GemmIsa& gemm, MaskKind kind, const HeadMatrix& m, int64_t query, int queries, int64_t key,
                     int64_t keys, float* to, WeighArgs& w) {
  if (kind == MaskKind::kBool) {
    w.mask_bool = reinterpret_cast<const uint8_t*>(m.at(query)) + key * m.col;
    w.mask_row = m.row, w.mask_col = m.col;
    return;
  }
  const char* from = m.data + key * m.col * bytes_of_dtype(m.dtype);
  w.mask_by_query = m.row != 0;
  int64_t rows_at[kMostQueriesOfPanel];
  for (int i = 0; i < queries; ++i) rows_at[i] = (query + i) * m.row;
  const int rows = w.mask_by_query ? queries : 1, height = w.mask_by_query ? gemm.nr : 1;
  gemm.pack_b({from, m.dtype, rows_at, rows, height, m.col, keys, to});
  w.mask_add = to, w.mask_step = height;
}

// Rows of the left side [rows][depth] in tiles, each with all of its depth.
inline void pack_head_rows(const GemmIsa& gemm, const char* from, uint32_t dtype, int64_t rows, int64_t row, int64_t col,
                           int64_t depth, float* to) {
  const HeadTiles tiles(rows, gemm.mr);
  for (int64_t t = 0; t < tiles.count; ++t) {
    int64_t at[kMostQueriesOfPanel];
    const int height = tiles.height(t);
    for (int r = 0; r < height; ++r) at[r] = (tiles.first(t) + r) * row;
    gemm.pack_a({from, dtype, at, height, height, col, depth, to + tiles.first(t) * depth});
  }
}

// Rows [first, first + rows) as the columns of one panel of the right side: [depth][nr].
inline void pack_head_panel(const GemmIsa& gemm, const HeadMatrix& m, int64_t first, int rows, int64_t depth, float* to) {
  int64_t at[kMostQueriesOfPanel];
  for (int i = 0; i < rows; ++i) at[i] = (first + i) * m.row;
  gemm.pack_b({m.data, m.dtype, at, rows, gemm.nr, m.col, depth, to});
}

// The function for the instruction set.
template <class F>
F* by_isa(const Isa& isa, F* baseline, F* avx2, F* avx512) {
  return isa.level >= 2 ? avx512 : isa.level == 1 ? avx2 : baseline;
}

}  // namespace cpu
