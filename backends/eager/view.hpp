// SPDX-License-Identifier: Apache-2.0
// Tensors as kernels see them at launch: element offsets from a base pointer (never byte pointers, since packed types have
// none), fixed capacity, no allocation.
#pragma once

#include <cstdint>
#include <span>

#include "tessera/abi.h"

namespace eager {

inline constexpr int kMaxRank = 64;    // of a view; some ops split every dim in two
inline constexpr int kMaxOpRank = 32;  // of an operand; claim() refuses more

struct Dims {
  int rank = 0;
  int64_t v[kMaxRank];
  Dims() = default;
  Dims(const Dims& o) : Dims(o.v, static_cast<uint32_t>(o.rank)) {}  // copies what is in use
  Dims& operator=(const Dims& o) {
    rank = o.rank;
    for (int i = 0; i < rank; ++i) v[i] = o.v[i];
    return *this;
  }
  Dims(const int64_t* p, uint32_t n) : rank(static_cast<int>(n)) {
    for (int i = 0; i < rank; ++i) v[i] = p[i];
  }
  int64_t& operator[](int i) { return v[i]; }
  const int64_t& operator[](int i) const { return v[i]; }
  void push(int64_t x) { v[rank++] = x; }
  int64_t product(int from = 0, int to = -1) const {
    int64_t p = 1;
    for (int i = from; i < (to < 0 ? rank : to); ++i) p *= v[i];
    return p;
  }
};

struct View {
  void* data = nullptr;  // element 0 of the tensor; `offset` is not yet added
  uint32_t dtype = 0;
  int64_t offset = 0;  // elements
  Dims sizes, strides;

  View() = default;
  explicit View(const tsr_tensor& t) : data(t.data), dtype(t.dtype), sizes(t.sizes, t.rank), strides(t.strides, t.rank) {
    strides.rank = sizes.rank;
  }
  int rank() const { return sizes.rank; }
  int64_t elements() const { return sizes.product(); }
  bool dense() const {
    int64_t step = 1;
    for (int i = rank() - 1; i >= 0; --i) {
      if (sizes[i] != 1 && strides[i] != step) return false;
      step *= sizes[i];
    }
    return true;
  }
};

// Dense row-major over `data`.
inline View dense_view(void* data, uint32_t dtype, const Dims& sizes) {
  View v;
  v.data = data;
  v.dtype = dtype;
  v.sizes = sizes;
  v.strides.rank = sizes.rank;
  int64_t step = 1;
  for (int i = sizes.rank - 1; i >= 0; --i) {
    v.strides[i] = step;
    step *= sizes[i];
  }
  return v;
}

inline bool absent(const tsr_tensor& t) { return (t.flags & TSR_TENSOR_ABSENT) != 0; }
inline int64_t elements(const tsr_tensor& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.sizes[i];
  return n;
}
inline int64_t normalise_axis(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

// A nest of loops over `N` operands: sizes of 1 dropped, neighbours merged where every operand allows it.
template <int N>
struct Nest {
  int rank = 0;
  int64_t sizes[kMaxRank];
  int64_t strides[N][kMaxRank];

  void push(int64_t size, const int64_t* step) {
    if (size == 1) return;
    if (rank > 0) {
      bool merge = true;
      for (int k = 0; k < N; ++k) merge = merge && strides[k][rank - 1] == step[k] * size;
      if (merge) {
        sizes[rank - 1] *= size;
        for (int k = 0; k < N; ++k) strides[k][rank - 1] = step[k];
        return;
      }
    }
    sizes[rank] = size;
    for (int k = 0; k < N; ++k) strides[k][rank] = step[k];
    ++rank;
  }
  int64_t total() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
  // Offsets of the flat index `i` (row-major over all but the last `skip` dims).
  void offsets(int64_t i, int64_t (&out)[N], int skip = 0) const {
    for (int k = 0; k < N; ++k) out[k] = 0;
    for (int d = rank - 1 - skip; d >= 0; --d) {
      const int64_t c = i % sizes[d];
      i /= sizes[d];
      for (int k = 0; k < N; ++k) out[k] += c * strides[k][d];
    }
  }
};

// Strides of `v` seen with the shape `out` (NumPy broadcasting: aligned at the end).
inline void broadcast_strides(const View& v, const Dims& out, int64_t* strides) {
  const int shift = out.rank - v.rank();
  for (int i = 0; i < out.rank; ++i) {
    const int j = i - shift;
    strides[i] = j < 0 || v.sizes[j] == 1 ? 0 : v.strides[j];
  }
}

}  // namespace eager
