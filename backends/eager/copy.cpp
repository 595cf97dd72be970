// SPDX-License-Identifier: Apache-2.0
#include "copy.hpp"

#include <algorithm>
#include <cstring>

namespace eager {

namespace {

struct B16 {
  uint64_t a, b;
};
using CopyNest = Nest<2>;  // 0: destination, 1: source

template <class T>
void copy_row(T* d, int64_t ds, const T* s, int64_t ss, int64_t n) {
  if (ds == 1 && ss == 1)
    std::memcpy(d, s, static_cast<size_t>(n) * sizeof(T));
  else if (ds == 1 && ss == 0)
    std::fill_n(d, n, *s);
  else if (ds == 1)
    for (int64_t i = 0; i < n; ++i) d[i] = s[i * ss];
  else
    for (int64_t i = 0; i < n; ++i) d[i * ds] = s[i * ss];
}

// dst[r][c] = src[c][r] of an N x N block that fits 128-bit registers: log2(N) rounds of interleaving the first half of the
// rows with the second.
template <class T>
void transpose_square(T* d, int64_t d_row, const T* s, int64_t s_col) {
  constexpr int N = 16 / sizeof(T);
  typedef T V __attribute__((vector_size(16)));
  typedef std::conditional_t<sizeof(T) == 1, int8_t,
                             std::conditional_t<sizeof(T) == 2, int16_t, std::conditional_t<sizeof(T) == 4, int32_t, int64_t>>>
      I;
  typedef I M __attribute__((vector_size(16)));
  M low, high;
  for (int i = 0; i < N; ++i) {
    low[i] = static_cast<I>(i / 2 + (i % 2) * N);
    high[i] = static_cast<I>(N / 2 + i / 2 + (i % 2) * N);
  }
  V a[N], b[N];
  for (int i = 0; i < N; ++i) std::memcpy(&a[i], s + i * s_col, sizeof(V));
  for (int round = 1; round < N; round *= 2) {
    for (int i = 0; i < N / 2; ++i) {
      b[2 * i] = __builtin_shuffle(a[i], a[i + N / 2], low);
      b[2 * i + 1] = __builtin_shuffle(a[i], a[i + N / 2], high);
    }
    for (int i = 0; i < N; ++i) a[i] = b[i];
  }
  for (int i = 0; i < N; ++i) std::memcpy(d + i * d_row, &a[i], sizeof(V));
}

// Destination contiguous along the last dim, source along the one before: 16 x 16 blocks touch each cache line once.
template <class T>
void transpose_block(T* d, int64_t d_row, const T* s, int64_t s_col, int64_t rows, int64_t cols) {
  constexpr int64_t B = 16;
  for (int64_t i = 0; i < rows; i += B)
    for (int64_t j = 0; j < cols; j += B) {
      const int64_t m = std::min(B, rows - i), n = std::min(B, cols - j);
      if constexpr (sizeof(T) <= 8) {
        if (m == B && n == B) {
          constexpr int64_t N = 16 / static_cast<int64_t>(sizeof(T));
          for (int64_t r = 0; r < B; r += N)
            for (int64_t c = 0; c < B; c += N)
              transpose_square(d + (i + r) * d_row + j + c, d_row, s + (j + c) * s_col + i + r, s_col);
          continue;
        }
      }
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < n; ++c) d[(i + r) * d_row + j + c] = s[(j + c) * s_col + i + r];
    }
}

template <class T>
void copy_typed(CopyNest& nest, T* dst, const T* src) {
  if (nest.rank == 0) {
    *dst = *src;
    return;
  }
  const int last = nest.rank - 1;
  // Write along contiguous memory: a destination with stride 1 goes innermost.
  for (int d = 0; d < last; ++d)
    if (nest.strides[0][d] == 1 && nest.strides[0][last] != 1) {
      for (int k = d; k < last; ++k) {
        std::swap(nest.sizes[k], nest.sizes[k + 1]);
        for (auto& s : nest.strides) std::swap(s[k], s[k + 1]);
      }
      break;
    }
  // A dim along which the source is contiguous, when the innermost is not it.
  int across = -1;
  if (nest.strides[0][last] == 1 && nest.strides[1][last] != 1 && nest.strides[1][last] != 0 && nest.sizes[last] >= 4)
    for (int d = 0; d < last; ++d)
      if (nest.strides[1][d] == 1 && nest.sizes[d] >= 4) across = d;
  if (across >= 0) {
    for (int k = 0; k < 2; ++k)
      for (int d = across; d < last - 1; ++d) std::swap(nest.strides[k][d], nest.strides[k][d + 1]);
    for (int d = across; d < last - 1; ++d) std::swap(nest.sizes[d], nest.sizes[d + 1]);
    const int64_t rows = nest.sizes[last - 1], cols = nest.sizes[last];
    const int64_t blocks = (rows + 63) / 64, outer = nest.total() / (rows * cols);
    sdk::parallel(outer * blocks, std::max<int64_t>(1, kGrain / (64 * cols)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int64_t at[2];
        nest.offsets(i / blocks, at, 2);
        const int64_t r = i % blocks * 64;
        transpose_block(dst + at[0] + r * nest.strides[0][last - 1], nest.strides[0][last - 1], src + at[1] + r,
                        nest.strides[1][last], std::min<int64_t>(64, rows - r), cols);
      }
    });
    return;
  }
  const int64_t n = nest.sizes[last], rows = nest.total() / n;
  if (rows == 1) {
    sdk::parallel(n, kGrain * 4 / static_cast<int64_t>(sizeof(T)), [&](int64_t begin, int64_t end) {
      copy_row(dst + begin * nest.strides[0][0], nest.strides[0][0], src + begin * nest.strides[1][0], nest.strides[1][0],
               end - begin);
    });
    return;
  }
  sdk::parallel(rows, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    int64_t index[kMaxRank], at[2];
    nest.offsets(begin, at, 1);
    int64_t rest = begin;
    for (int d = last - 1; d >= 0; --d) {
      index[d] = rest % nest.sizes[d];
      rest /= nest.sizes[d];
    }
    for (int64_t i = begin; i < end; ++i) {
      copy_row(dst + at[0], nest.strides[0][last], src + at[1], nest.strides[1][last], n);
      for (int d = last - 1; d >= 0; --d) {
        for (int k = 0; k < 2; ++k) at[k] += nest.strides[k][d];
        if (++index[d] < nest.sizes[d]) break;
        for (int k = 0; k < 2; ++k) at[k] -= nest.sizes[d] * nest.strides[k][d];
        index[d] = 0;
      }
    }
  });
}

// Sub-byte elements, one by one. Serial: neighbours share bytes.
void copy_packed(const CopyNest& nest, const View& src, const View& dst) {
  const int64_t total = nest.total();
  const int bits = tessera::dtype_bits(src.dtype);
  const uint32_t code = bits == 2 ? TSR_U2 : TSR_U4;
  for (int64_t i = 0; i < total; ++i) {
    int64_t at[2];
    nest.offsets(i, at);
    tessera::store_from(code, dst.data, dst.offset + at[0], tessera::load_as<uint8_t>(code, src.data, src.offset + at[1]));
  }
}

}  // namespace

void copy_view(const View& src, const View& dst) {
  CopyNest nest;
  for (int d = 0; d < dst.rank(); ++d) {
    if (dst.sizes[d] == 0) return;
    const int64_t step[2] = {dst.strides[d], src.strides[d]};
    nest.push(dst.sizes[d], step);
  }
  const int64_t size = element_bytes(dst.dtype);
  char* d = static_cast<char*>(dst.data) + dst.offset * size;
  const char* s = static_cast<const char*>(src.data) + src.offset * size;
  switch (size) {
    case 0: return copy_packed(nest, src, dst);
    case 1: return copy_typed(nest, reinterpret_cast<uint8_t*>(d), reinterpret_cast<const uint8_t*>(s));
    case 2: return copy_typed(nest, reinterpret_cast<uint16_t*>(d), reinterpret_cast<const uint16_t*>(s));
    case 4: return copy_typed(nest, reinterpret_cast<uint32_t*>(d), reinterpret_cast<const uint32_t*>(s));
    case 8: return copy_typed(nest, reinterpret_cast<uint64_t*>(d), reinterpret_cast<const uint64_t*>(s));
    default: return copy_typed(nest, reinterpret_cast<B16*>(d), reinterpret_cast<const B16*>(s));
  }
}

void fill_view(const View& dst, const void* value) {
  View one;
  one.data = const_cast<void*>(value);
  one.dtype = dst.dtype;
  one.sizes = dst.sizes;
  one.strides.rank = dst.rank();
  for (int d = 0; d < dst.rank(); ++d) one.strides[d] = 0;
  copy_view(one, dst);
}

View narrow(View v, int axis, int64_t start, int64_t size) {
  v.offset += start * v.strides[axis];
  v.sizes[axis] = size;
  return v;
}

}  // namespace eager
