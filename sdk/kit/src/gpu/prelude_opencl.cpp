// SPDX-License-Identifier: Apache-2.0
// The prelude of OpenCL C. Where the other dialects have templates, functions are overloaded; accesses of several elements are
// by the address spaces of both sides.
#include "tessera/kit/gpu/emit.hpp"

namespace tessera::kit {
namespace {

constexpr const char* kOpenCL = R"(// OpenCL C, -cl-fp32-correctly-rounded-divide-sqrt.
#pragma OPENCL FP_CONTRACT OFF
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef struct { u32 code, claimed; u64 site; i64 values[2]; } fault_record;
#define DEVICE static inline __attribute__((overloadable))
#define KERNEL(threads) __kernel __attribute__((reqd_work_group_size(threads, 1, 1)))
#define GLOBAL __global
#define RESTRICT restrict
#define alignas(bytes) __attribute__((aligned(bytes)))
#define SHARED(type, name, count, offset) __local type name[count] __attribute__((aligned(16)))
#define DYNAMIC_SHARED
#define SHARED_AT SHARED
#define block_number() ((u32)get_group_id(0))
#define thread_number() ((u32)get_local_id(0))
#define barrier_block() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define INTEGER(T, U, bits, negative) \
  DEVICE T wrap_neg(T a) { return (T)(0 - (U)a); } \
  DEVICE T wrap_add(T a, T b) { return (T)((U)a + (U)b); } \
  DEVICE T wrap_sub(T a, T b) { return (T)((U)a - (U)b); } \
  DEVICE T wrap_mul(T a, T b) { return (T)((U)a * (U)b); } \
  DEVICE T wrap_div(T a, T b) { return b == 0 ? (T)0 : negative(b + 1 == 0) ? wrap_neg(a) : a / b; } \
  DEVICE T wrap_rem(T a, T b) { return b == 0 || negative(b + 1 == 0) ? (T)0 : a % b; } \
  DEVICE T shift_left(T a, T b) { return (U)b >= bits ? (T)0 : (T)((U)a << b); } \
  DEVICE T shift_right(T a, T b) { return (U)b < bits ? (T)(a >> b) : negative(a < 0) ? (T)-1 : (T)0; } \
  DEVICE T floor_div(T a, T b) { T q = a / b; return q - (a % b != 0 && negative(a < 0)); } \
  DEVICE T floor_mod(T a, T b) { T r = a % b; return negative(r < 0) ? r + b : r; } \
  DEVICE T quotient_of(T a, T b) { return (T)((U)a / (U)b); } \
  DEVICE T remainder_of(T a, T b) { return (T)((U)a % (U)b); } \
  DEVICE T least(T a, T b) { return a < b ? a : b; } \
  DEVICE T most(T a, T b) { return a > b ? a : b; }
#define IS(x) (x)
#define NEVER(x) 0
INTEGER(i8, u8, 8, IS)
INTEGER(i16, u16, 16, IS)
INTEGER(i32, u32, 32, IS)
INTEGER(i64, u64, 64, IS)
INTEGER(u8, u8, 8, NEVER)
INTEGER(u16, u16, 16, NEVER)
INTEGER(u32, u32, 32, NEVER)
INTEGER(u64, u64, 64, NEVER)
DEVICE i8 abs_of(i8 a) { return a < 0 ? wrap_neg(a) : a; }
DEVICE i16 abs_of(i16 a) { return a < 0 ? wrap_neg(a) : a; }
DEVICE i32 abs_of(i32 a) { return a < 0 ? wrap_neg(a) : a; }
DEVICE i64 abs_of(i64 a) { return a < 0 ? wrap_neg(a) : a; }
DEVICE float abs_of(float x) { return fabs(x); }
DEVICE double abs_of(double x) { return fabs(x); }
#define sqrt_of sqrt
#define floor_of floor
#define ceil_of ceil
#define trunc_of trunc
#define round_of rint
#define fma_of fma
#define popcount_of popcount
#define as_i32 as_int
#define as_u32 as_uint
#define as_i64 as_long
#define as_u64 as_ulong
// Elements side by side between memory and registers.
#define CHUNK(bytes, T) typedef struct { T __attribute__((aligned(bytes))) part; } __attribute__((may_alias)) chunk_##bytes;
CHUNK(2, u16)
CHUNK(4, u32)
CHUNK(8, u64)
CHUNK(16, uint4)
#define MOVE_BETWEEN(bytes, target, source) DEVICE void move_##bytes(target void* to, source const void* from) { \
  *(target chunk_##bytes*)to = *(source const chunk_##bytes*)from; }
#define MOVES(bytes) MOVE_BETWEEN(bytes, __global, __private) MOVE_BETWEEN(bytes, __private, __global) \
  MOVE_BETWEEN(bytes, __local, __private) MOVE_BETWEEN(bytes, __private, __local)
MOVES(2)
MOVES(4)
MOVES(8)
MOVES(16)
#define MOVE(bytes, to, from) move_##bytes(to, from)
static __attribute__((noinline)) void raise(__global fault_record* r, u64 site, u32 code) {
  if (r == 0 || atomic_cmpxchg((volatile __global u32*)&r->claimed, 0u, 1u) != 0u) return;
  r->site = site;
  r->values[0] = r->values[1] = 0;
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  *(volatile __global u32*)&r->code = code;
}
DEVICE float widen_bf16(u16 h) { return as_float((u32)h << 16); }
DEVICE u16 cut_bf16(float x) { return (u16)(as_u32(x) >> 16); }
DEVICE u16 narrow_bf16(float x) {
  const u32 b = as_u32(x);
  return x != x ? (u16)0x7fc0 : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);
}
DEVICE float round_bf16(float x) { return widen_bf16(narrow_bf16(x)); }
DEVICE float widen_f16(u16 h) {
  const u32 mag = h & 0x7fffu, sign = (u32)(h & 0x8000u) << 16;
  if (mag >= 0x7c00u) return as_float(sign | 0x7f800000u | (mag & 0x3ffu ? 0x400000u | (mag & 0x3ffu) << 13 : 0u));
  return mag < 0x400u ? as_float(sign | as_u32((float)mag * 5.9604644775390625e-08f))
                      : as_float(sign | ((mag << 13) + 0x38000000u));
}
DEVICE u16 narrow_f16(float x) {
  const u32 raw = as_u32(x), mag = raw & 0x7fffffffu, sign = (raw ^ mag) >> 16;
  if (mag > 0x7f800000u) return (u16)0x7e00;
  if (mag >= 0x47800000u) return (u16)(sign | 0x7c00u);
  if (mag < 0x38800000u) return (u16)(sign | (as_u32(as_float(mag) + 0.5f) - 0x3f000000u));
  return (u16)(sign | ((mag + 0xc8000fffu + ((mag >> 13) & 1u)) >> 13));
}
#define LIBRARY(f) DEVICE double library_##f(double x) { return f(x); }
LIBRARY(exp) LIBRARY(exp2) LIBRARY(expm1) LIBRARY(log) LIBRARY(log2) LIBRARY(log10) LIBRARY(log1p) LIBRARY(sin) LIBRARY(cos)
LIBRARY(tan) LIBRARY(asin) LIBRARY(acos) LIBRARY(atan) LIBRARY(sinh) LIBRARY(cosh) LIBRARY(tanh) LIBRARY(asinh) LIBRARY(acosh)
LIBRARY(atanh) LIBRARY(erf)
#define LIBRARY2(f) DEVICE double library_##f(double x, double y) { return f(x, y); }
LIBRARY2(pow) LIBRARY2(atan2) LIBRARY2(hypot) LIBRARY2(fmod)
)";

}  // namespace

const GpuDialect& opencl_dialect() {
  static const GpuDialect d{"opencl", kOpenCL, false, false, "l"};
  return d;
}

}  // namespace tessera::kit
