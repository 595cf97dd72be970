// SPDX-License-Identifier: Apache-2.0
// Reductions of runs and of columns, compiled once per ISA.
#include "lanes.hpp"

namespace eager {
namespace {

template <class R, class T, class Map>
void run(const void* x, int64_t n, void* out) {
  *static_cast<T*>(out) = chunk<R>(static_cast<const T*>(x), n, Map{});
}

template <class R, class T, class Map>
void column(const void* base, const int64_t* offsets, int64_t first, int64_t rows, int64_t total, int64_t cols, void* lanes,
            void* out) {
  static_assert(sizeof(T) <= 8);
  const Map map{};
  const int64_t width = total >= kLongFrom ? kLongLanes : kShortLanes;
  T* acc = static_cast<T*>(lanes);
  if (first == 0)
    for (int64_t i = 0; i < width * kColumns; ++i) acc[i] = R::template identity<T>();
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = static_cast<const T*>(base) + offsets[r];
    T* a = acc + (first + r) % width * kColumns;
    if (cols == kColumns) {
      EAGER_SIMD
      for (int64_t c = 0; c < kColumns; ++c) a[c] = R::run(a[c], map(x[c]));
    } else {
      EAGER_SIMD
      for (int64_t c = 0; c < cols; ++c) a[c] = R::run(a[c], map(x[c]));
    }
  }
  if (first + rows < total) return;
  for (int64_t w = width / 2; w > 0; w /= 2)
    for (int64_t j = 0; j < w; ++j) {
      EAGER_SIMD
      for (int64_t c = 0; c < kColumns; ++c) acc[j * kColumns + c] = R::run(acc[j * kColumns + c], acc[(j + w) * kColumns + c]);
    }
  for (int64_t c = 0; c < cols; ++c) static_cast<T*>(out)[c] = acc[c];
}

struct Reducer {
  Reduce reduce;
  Comp comp;
  ChunkFn chunk;
  ColumnFn column;
};
#define ENTRY(KIND, COMP, OP, T, MAP) \
  { Reduce::KIND, Comp::COMP, run<OP, T, MAP>, column<OP, T, MAP> }
constexpr Reducer kReducers[] = {
    ENTRY(Sum, F32, SumOp, float, AsIs),         ENTRY(Sum, F64, SumOp, double, AsIs),
    ENTRY(Sum, I32, SumOp, uint32_t, AsIs),      ENTRY(Sum, I64, SumOp, uint64_t, AsIs),
    ENTRY(Sum, U64, SumOp, uint64_t, AsIs),      ENTRY(Prod, F32, ProdOp, float, AsIs),
    ENTRY(Prod, F64, ProdOp, double, AsIs),      ENTRY(Prod, I32, ProdOp, uint32_t, AsIs),
    ENTRY(Prod, I64, ProdOp, uint64_t, AsIs),    ENTRY(Prod, U64, ProdOp, uint64_t, AsIs),
    ENTRY(Max, F32, MaxOp, float, AsIs),         ENTRY(Max, F64, MaxOp, double, AsIs),
    ENTRY(Max, I32, MaxOp, int32_t, AsIs),       ENTRY(Max, I64, MaxOp, int64_t, AsIs),
    ENTRY(Max, U64, MaxOp, uint64_t, AsIs),      ENTRY(Max, U8, MaxOp, uint8_t, AsIs),
    ENTRY(Min, F32, MinOp, float, AsIs),         ENTRY(Min, F64, MinOp, double, AsIs),
    ENTRY(Min, I32, MinOp, int32_t, AsIs),       ENTRY(Min, I64, MinOp, int64_t, AsIs),
    ENTRY(Min, U64, MinOp, uint64_t, AsIs),      ENTRY(Min, U8, MinOp, uint8_t, AsIs),
    ENTRY(SumSq, F32, SumOp, float, Squared),    ENTRY(SumSq, F64, SumOp, double, Squared),
    ENTRY(SumAbs, F32, SumOp, float, Magnitude), ENTRY(SumAbs, F64, SumOp, double, Magnitude),
};

const Reducer* find(Reduce r, Comp c) {
  for (const Reducer& e : kReducers)
    if (e.reduce == r && e.comp == c) return &e;
  return nullptr;
}

}  // namespace

ChunkFn EAGER_ISA(find_chunk)(Reduce r, Comp c) {
  const Reducer* e = find(r, c);
  return e ? e->chunk : nullptr;
}
ColumnFn EAGER_ISA(find_column)(Reduce r, Comp c) {
  const Reducer* e = find(r, c);
  return e ? e->column : nullptr;
}

}  // namespace eager
