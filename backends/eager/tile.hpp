// SPDX-License-Identifier: Apache-2.0
// The vocabulary of the eager backend's inner loops. Data of any dtype is computed in one of eight types; a kernel works on
// runs of contiguous elements of them ("tiles"), so that every op is written a few times and works for all 25 dtypes.
//
// This header is also compiled with -mavx2 and -mavx512*: it must not define a function with external linkage.
#pragma once

#include <cstdint>

namespace eager {

enum class Comp : uint8_t { F32, F64, I32, I64, U64, U8, C64, C128 };
inline constexpr int kNumComps = 8;

// Elements per buffered tile. Also the unit in which elementwise work is split: a multiple of 8, so that two threads never
// share a byte of a packed tensor.
inline constexpr int64_t kTile = 512;

template <class R>
struct Cplx {
  R re, im;
};
using C64 = Cplx<float>;
using C128 = Cplx<double>;

template <class T>
struct CompOf;
template <>
struct CompOf<float> {
  static constexpr Comp value = Comp::F32;
};
template <>
struct CompOf<double> {
  static constexpr Comp value = Comp::F64;
};
template <>
struct CompOf<int32_t> {
  static constexpr Comp value = Comp::I32;
};
template <>
struct CompOf<int64_t> {
  static constexpr Comp value = Comp::I64;
};
template <>
struct CompOf<uint64_t> {
  static constexpr Comp value = Comp::U64;
};
template <>
struct CompOf<uint8_t> {
  static constexpr Comp value = Comp::U8;
};
template <>
struct CompOf<C64> {
  static constexpr Comp value = Comp::C64;
};
template <>
struct CompOf<C128> {
  static constexpr Comp value = Comp::C128;
};

enum class Op : uint8_t {
  // unary
  Abs,
  Neg,
  Sign,
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log10,
  Log1p,
  Sqrt,
  Rsqrt,
  Cbrt,
  Reciprocal,
  Sin,
  Cos,
  Tan,
  Asin,
  Acos,
  Atan,
  Sinh,
  Cosh,
  Tanh,
  Asinh,
  Acosh,
  Atanh,
  Erf,
  Erfc,
  Erfinv,
  Lgamma,
  Digamma,
  Sigmoid,
  Floor,
  Ceil,
  Round,
  Trunc,
  IsNan,
  IsInf,
  IsFinite,
  LogicalNot,
  BitNot,
  Popcount,
  Conj,
  Real,
  Imag,
  Relu,
  LeakyRelu,
  Elu,
  Selu,
  Celu,
  Gelu,
  GeluTanh,
  Silu,
  Mish,
  Softplus,
  HardSigmoid,
  HardSwish,
  // binary
  Add,
  Sub,
  Mul,
  Div,
  FloorDiv,
  Remainder,
  Fmod,
  Pow,
  Atan2,
  Hypot,
  Copysign,
  Nextafter,
  Maximum,
  Minimum,
  Fmax,
  Fmin,
  BitAnd,
  BitOr,
  BitXor,
  Shl,
  Shr,
  LogicalAnd,
  LogicalOr,
  LogicalXor,
  MakeComplex,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  // ternary
  Select,
  Clamp,
  ClampLo,
  ClampHi,
};

inline constexpr int kMaxTileInputs = 3;
struct TileArgs {
  int64_t n;
  void* out;
  const void* in[kMaxTileInputs];
  int64_t step[kMaxTileInputs];  // 1, or 0 for one value that holds for the whole tile (binary ops only)
  const double* params;          // what the op's attributes said: slope, alpha, beta, bit width, ..
  uint32_t* faults;              // kDivByZero is or-ed in
};
inline constexpr uint32_t kDivByZero = 1;
using TileFn = void (*)(const TileArgs&);

// Reductions of contiguous elements and of columns. Their order is a function of the count alone: see isa/reduce.inc.
enum class Reduce : uint8_t { Sum, Prod, Max, Min, SumSq, SumAbs };
inline constexpr int kNumReduces = 6;
inline constexpr int64_t kChunk = 4096;  // longest run that is reduced in one go; longer ones combine chunk results

// *out = the reduction of x[0 .. n), 0 <= n <= kChunk.
using ChunkFn = void (*)(const void* x, int64_t n, void* out);
// Columns side by side, row after row: adds rows [first, first + rows) of `total`, row r at base[offsets[r - first] + c], c in
// [0, cols), cols <= kColumns. `lanes` (kColumnLanes bytes) carries the partial results; after the last row *out[c] is bit for
// bit what ChunkFn gives for column c.
inline constexpr int64_t kColumns = 64, kColumnLanes = 32 * kColumns * 8;
using ColumnFn = void (*)(const void* base, const int64_t* offsets, int64_t first, int64_t rows, int64_t total, int64_t cols,
                          void* lanes, void* out);

// Row kernels over contiguous f32 or f64 (T). y may be x.
template <class T>
struct RowFns {
  void (*softmax)(T* y, const T* x, int64_t n, bool log);
  // mean and 1/sqrt(var + eps) of x; `rms`: no mean, 1/sqrt(mean square + eps)
  void (*moments)(const T* x, int64_t n, T eps, bool rms, T* mean, T* rstd);
  // y = ((x - mean) * rstd) * w + b; w, b may be null
  void (*normalise)(T* y, const T* x, int64_t n, T mean, T rstd, const T* w, const T* b);
  // y = ((x - mean) * rstd) * scale + shift
  void (*affine)(T* y, const T* x, int64_t n, T mean, T rstd, T scale, T shift);
  T (*logsumexp)(const T* x, int64_t n);
  // centred sum of squares: sum (x - mean)^2
  T (*sum_sq_diff)(const T* x, int64_t n, T mean);
};

// A block of C = A * B (+ bias), or C += A * B (+ bias). Strides are in elements; f32 in, f32 accumulated in one fixed order
// over k; `bias` is added last.
struct GemmArgs {
  int64_t m, n, k;
  const float* a;
  int64_t a_m, a_k;
  const float* b;
  int64_t b_k, b_n;
  float* c;
  int64_t c_m;        // c_n is 1
  const float* bias;  // [n] or null
  bool accumulate;    // add to C
  bool packed;        // part of a larger product: take the path that it takes, however few rows this part has
};

// One head of attention for at most kAttentionRows query rows. *_row, *_col: strides; the columns of out are contiguous.
inline constexpr int64_t kAttentionRows = 64, kAttentionKeys = 128;
struct AttentionArgs {
  int64_t q_rows, kv_rows, head, value;
  const float* q;
  int64_t q_row, q_col;
  const float* k;
  int64_t k_row, k_col;
  const float* v;
  int64_t v_row, v_col;
  float* out;
  int64_t out_row;
  const uint8_t* mask_bool;    // false: the key takes no part; or null
  const float* mask_add;       // added to the scores; or null
  int64_t mask_row, mask_col;  // strides of the mask in use
  bool causal;                 // row i sees keys up to first_query + i
  int64_t first_query;
  float scale;
};

struct Isa {
  const char* name;
  bool onednn;               // products and convolutions may go to oneDNN
  TileFn (*tile)(Op, Comp);  // null: not vectorised here, see scalar_ops.cpp
  ChunkFn (*chunk)(Reduce, Comp);
  ColumnFn (*column)(Reduce, Comp);
  void (*f16_to_f32)(const uint16_t*, float*, int64_t);
  void (*f32_to_f16)(const float*, uint16_t*, int64_t);
  void (*bf16_to_f32)(const uint16_t*, float*, int64_t);
  void (*f32_to_bf16)(const float*, uint16_t*, int64_t);
  RowFns<float> row_f32;
  RowFns<double> row_f64;
  void (*gemm)(const GemmArgs&);  // single-threaded; uses at most 512 KB of stack
  void (*attention)(const AttentionArgs&);
  // The 4 * blocks words of Philox blocks counter, counter + 1, ..; docs/random.md.
  void (*philox)(uint64_t key, uint64_t counter, int64_t blocks, uint32_t* out);
  // Normally distributed f32 values from as many words.
  void (*box_muller)(const uint32_t* words, int64_t pairs, float* out);
};

// Null: this machine does not have it.
const Isa* isa_baseline(bool onednn);
const Isa* isa_avx2(bool onednn);
const Isa* isa_avx512(bool onednn);

}  // namespace eager
