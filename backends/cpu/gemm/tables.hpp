// SPDX-License-Identifier: Apache-2.0
// What is compiled once per instruction set for matrix products: micro-kernels, packing, and the store of a finished tile.
//
// Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008: A is packed in tiles of `height` rows, B in
// panels of `nr` columns, and a micro-kernel keeps height x nr sums in registers. Packed forms, with K rounded up to `k_unit`
// by zeros:
//   f32        [k][height] floats, k_unit 1. bf16 and f16 are widened while they are packed.
//   bf16 pairs [k / 2][height][2], k_unit 32: the two products that one dot instruction adds lie side by side.
//   bf16 rows  [k / 32][height][32], k_unit 32: the left side's form for tiles (AMX); the right side is in pairs.
#pragma once

#include <cstdint>

namespace cpu {

// `k` elements of `rows` rows: row r begins at src + rows_at[r], its elements are k_stride apart (in elements). Rows from
// `rows` to `height` become zeros. `out` is where element 0 goes; 16 floats behind the last element may not be touched.
struct PackArgs {
  const void* src;
  uint32_t dtype;          // tsr_dtype of src: f32, bf16 or f16
  const int64_t* rows_at;  // [rows], in elements
  int rows, height;
  int64_t k_stride, k;
  void* out;
};

// A tile of sums, `ld` floats between rows, on its way to the result.
struct StoreArgs {
  const float* sums;
  int64_t ld;
  int rows, cols;
  const float* bias;      // [cols], or null
  const float* row_bias;  // [rows], or null; f32 results only
  void* out;
  uint32_t dtype;  // f32, bf16 or f16: rounded once; with a bias, once before and once after it is added
  int64_t out_ld;  // elements
  // [rows], [cols], or both null: sums are multiplied by these first, powers of two. f32 results only.
  const float *row_factors = nullptr, *column_factors = nullptr;
};

// One op on finished results, in place.
struct FinishStep {
  enum Kind : uint32_t { kAdd, kMul, kRelu, kClamp, kHardswish, kGelu, kGeluTanh } kind;
  // Where the other operand of kAdd and kMul lies: at the result's own place, one value for a column or for a row of the
  // result, one for all.
  enum Mode : uint32_t { kDense, kRow, kColumn, kScalar } mode;
  const float* data;  // element 0; null with kScalar
  float lo, hi;       // kClamp; lo: the value with kScalar
};

// What becomes of a tile that begins at row `row` and column `col` of the result and at its element `at`; its rows are ld apart
// there.
struct FinishArgs {
  int64_t ld;
  int64_t at, row, col;
  const FinishStep* steps;
  int num_steps;
};

// A whole tile of results that micro-kernels finish in registers: sum + bias, + what `other` has there, and then hardswish, or
// what is not above `least` becomes that: 0 for relu, minus infinity for nothing.
struct DoneArgs {
  float* out;
  int64_t out_ld;
  const float* sums;      // of the pieces of K before this one, nr floats between rows; null: there are none
  const float* bias;      // [nr]; null: row_bias
  const float* row_bias;  // [height]
  const float* other;     // null: nothing is added
  int64_t other_ld;
  float least;
  bool hardswish;
};

// Floats from row to row of a left side that is packed in rows: [height][kRowPitch], of which k are read. Above the longest
// piece of K by a vector, and no power of two, whose multiples fall into few sets of a cache.
inline constexpr int64_t kRowPitch = 496;

// Where a tile of products goes that several sums share: it is added to one or two of them, or begins them.
struct Sums {
  enum Mode : uint32_t { kNone, kBegin, kAdd, kSubtract };
  float* to[2];  // nr floats between rows
  Mode mode[2];  // the first is not kNone
};

// What micro-kernels ask the caches for beside their work, a little with every k. They need not; all of it may be anywhere in
// the address space.
struct Prefetch {
  const char* next;  // into the second-level cache, `step` bytes further with every k: packed weights come from far away
  int64_t step;
  // Into the nearest cache: the lines at `at` and `beside` bytes behind it, then `step` bytes further, as often as the tile has
  // rows, spread over all of K. First where results go, then what is added to them: asked for at once, at the end, so many
  // lines keep the next tile's operands waiting.
  struct Lines {
    const char* at;
    int64_t beside, step;
  } lines[2];
  // Nothing but `next`, for a tile whose sums go to `own`.
  static Prefetch only(const void* next, int64_t step, const float* own) {
    const char* at = reinterpret_cast<const char*>(own);
    return {static_cast<const char*>(next), step, {{at, 0, 0}, {at, 0, 0}}};
  }
};

struct GemmIsa {
  const char* name;
  bool bf16;             // operands are packed as bf16; else as f32
  int mr, nr;            // the largest tile
  int row_unit;          // heights are multiples of it; rows beyond the matrix are zeros
  int64_t k_unit;        // packed K is a multiple of it
  int64_t kc;            // elements of K between two additions to the sums in memory
  int64_t packed_bytes;  // of an element
  // Micro-kernels for tiles of one height; null: there is none.
  struct Kernels {
    // sums[i][j] (+)= sum over k of a[k][i] * b[k][j]; k is a multiple of k_unit; height rows, nr columns, `ld` floats between
    // rows.
    using Micro = void (*)(int64_t k, const void* a, const void* b, float* sums, int64_t ld, bool add,
                           const Prefetch& prefetch);
    Micro whole;
    // The same for the first half or quarter of the columns; other sums may be anything. f32 only.
    Micro half, quarter;
    // The same on nr columns of B as they lie in memory, rows `b_ld` floats apart, of a short K. f32 only.
    void (*at)(int64_t k, const void* a, const float* b, int64_t b_ld, float* sums, int64_t ld, bool add);
    // Both with the last piece of K, finished and written as `done` says. f32 only.
    void (*done)(int64_t k, const void* a, const float* b, const DoneArgs& done, const Prefetch& prefetch);
    void (*done_at)(int64_t k, const void* a, const float* b, int64_t b_ld, const DoneArgs& done);
    // Products that are spread over other sums; `a` is packed in rows. f32 only.
    void (*add_to)(int64_t k, const void* a, const float* b, const Sums& to, const Prefetch& prefetch);
    // For the first `cols` columns.
    Micro part(int cols, int nr) const { return cols <= nr / 4 && quarter ? quarter : cols <= nr / 2 && half ? half : whole; }
  };
  Kernels micro[33];  // by height; nulls where that height is not used
  void (*pack_a)(const PackArgs&);
  void (*pack_b)(const PackArgs&);
  // With f32 results the steps are applied on the way; f is the place of the same tile in the result, and not used otherwise.
  void (*store)(const StoreArgs&, const FinishArgs& f);
  // The transposed tile: out[column * out_ld + row], f32, row_bias by column; f counts rows and columns of the result. Null:
  // none.
  void (*transpose)(const StoreArgs&, const FinishArgs& f);
  void (*begin)();  // before and after micro-kernels on a thread; may be null
  void (*end)();
};

const GemmIsa* gemm_f32_baseline();
const GemmIsa* gemm_f32_avx2();
const GemmIsa* gemm_f32_avx512();
const GemmIsa* gemm_bf16_avx512();
const GemmIsa* gemm_bf16_amx();

}  // namespace cpu
