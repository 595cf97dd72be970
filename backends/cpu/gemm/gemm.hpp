// SPDX-License-Identifier: Apache-2.0
// Matrix products C[batch, m, n] = sum over k of A[batch, m, k] * B[batch, k, n] of any strides, B maybe packed beforehand,
// with an epilogue on each finished tile. f32, bf16 and f16 operands; sums in f32.
//
// The order in which a sum adds its products follows from K, the dtype and the instruction set alone: results do not depend on
// the number of threads, and not on M or N.
#pragma once

#include <cstdint>
#include <memory>

#include "jit/isa.hpp"
#include "nest.hpp"
#include "tables.hpp"

namespace cpu {

// The kernels for operands of these dtypes: bf16 ones where both are bf16 and the instruction set has such products, else f32.
// Null: not dtypes that this file takes.
const GemmIsa* gemm_kernels(const Isa& isa, uint32_t a_dtype, uint32_t b_dtype);

// What an epilogue is given: sums of rows [row, row + rows) and columns [col, col + cols) of one batch entry.
struct TileArgs {
  const float* sums;
  int64_t ld;  // floats between rows of sums
  int64_t batch, row, col;
  int32_t rows, cols;
  const void* context;  // as Gemm::context
};
using Epilogue = void(const TileArgs*);

// Writes rows [k0, k0 + count) of columns [column, column + cols) of B of one batch entry as f32 kernels read them, in panels
// out[k][nr] that are `step` floats apart; anything in the columns of the last panel from `cols` on; it may write up to nr
// floats behind the end of each. For matrices that exist nowhere, such as a convolution's.
using PanelSource = void(const void* context, int64_t batch, int64_t column, int cols, int64_t k0, int64_t count, float* out,
                         int64_t step);

// Writes rows [row, row + rows) of A, all of K, as f32 micro-kernels of that height read them: out[k][rows]. Of batch entry 0.
using RowSource = void(const void* context, int64_t row, int rows, float* out);

struct Gemm {
  const GemmIsa* isa = nullptr;
  Nest<2> batch;  // strides of a, b
  Nest<1> m, n;
  Nest<2> k;                              // of a, b
  const void *a = nullptr, *b = nullptr;  // element 0
  uint32_t a_dtype = 0, b_dtype = 0;
  const void* packed_a =
      nullptr;  // what pack_left wrote, for batch entries 0 .. packed_a_count - 1, over and over; then a is not read
  int64_t packed_a_count = 1;
  PanelSource* panel = nullptr;  // then b is not read, but for whole panels of `rows_b`
  // Not null: B of batch entry i has its rows at rows_b + i * rows_b_batch, rows_b_ld floats apart. f32 kernels; with `panel`.
  const float* rows_b = nullptr;
  int64_t rows_b_batch = 0, rows_b_ld = 0;
  RowSource* row_source = nullptr;       // then a is not read; f32 kernels, no batch
  const void* source_context = nullptr;  // of either
  const void* packed_b = nullptr;        // what pack_matrix wrote, for batch 0 (no batch in b); then b is not read
  void* c = nullptr;                     // dense [batch, m, n]; not read with an epilogue
  uint32_t c_dtype = 0;                  // f32, bf16 or f16
  const void* bias = nullptr;            // [n] of bias_dtype, bias_stride apart
  uint32_t bias_dtype = 0;
  int64_t bias_stride = 1;
  const float* row_bias = nullptr;  // [row_bias_count, m], f32, for batch entries 0 .. row_bias_count - 1, over and over
  int64_t row_bias_count = 1;
  // Not 0: C lies transposed, as [m / transposed, n, transposed], and is f32; `bias` is f32, and rows and columns of the steps
  // are those of C. No batch.
  int64_t transposed = 0;
  const FinishStep* steps = nullptr;  // on the results, which are f32
  int num_steps = 0;
  Epilogue* epilogue = nullptr;  // instead of the store to c, the bias and the steps
  const void* context = nullptr;
};

// Where the operands come from and how the result lies, as far as the workspace depends on it.
struct GemmForm {
  bool packed_a = false, packed_b = false, panel = false, transposed = false;
};
// Bytes of workspace that `run` needs for these sizes on at most `slots` threads.
int64_t gemm_workspace(const GemmIsa& isa, int64_t batch, int64_t m, int64_t n, int64_t k, GemmForm form, int slots);
// Runs on the host's threads, at most `slots`. `workspace` is 64-byte aligned. Reentrant; allocates nothing.
void gemm_run(const Gemm& g, void* workspace, int slots);

// B of one matrix in the form that micro-kernels read, for any M.
int64_t packed_matrix_bytes(const GemmIsa& isa, int64_t n, int64_t k);
void pack_matrix(const GemmIsa& isa, const void* b, uint32_t dtype, const Nest<1>& n, const Nest<2>& k, void* out);

// One panel of that: columns [panel * nr, (panel + 1) * nr), zeros where there are none, and behind K up to `padded`.
void pack_right_panel(const GemmIsa& isa, const void* b, uint32_t dtype, const Nest<1>& n, const Nest<2>& k, int64_t panel,
                      int64_t padded, void* out);

// A of one matrix, for any N.
int64_t packed_left_bytes(const GemmIsa& isa, int64_t m, int64_t k);
void pack_left(const GemmIsa& isa, const void* a, uint32_t dtype, const Nest<1>& m, const Nest<2>& k, void* out);

}  // namespace cpu
