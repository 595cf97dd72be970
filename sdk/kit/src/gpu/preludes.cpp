// SPDX-License-Identifier: Apache-2.0
// What the text of a program calls, for each dialect: a closed list. The first part is the same for all of them.
#include "group_text.hpp"
#include "tessera/kit/gpu/emit.hpp"

namespace tessera::kit {
namespace {

#define TESSERA_COMMON_TYPES                                                                                         \
  "typedef signed char i8;\ntypedef short i16;\ntypedef int i32;\ntypedef long long i64;\n"                          \
  "typedef unsigned char u8;\ntypedef unsigned short u16;\ntypedef unsigned u32;\ntypedef unsigned long long u64;\n" \
  "struct fault_record { u32 code, claimed; u64 site; i64 values[2]; };\n"

// Integers wrap, division by zero gives zero, shifts by the width or more shift everything out. quotient_of and remainder_of
// are floor_div and floor_mod of what is never negative.
#define TESSERA_COMMON_ARITHMETIC                                                                                              \
  "template <class T> struct unsigned_of { typedef T type; };\n"                                                               \
  "template <> struct unsigned_of<i32> { typedef u32 type; };\n"                                                               \
  "template <> struct unsigned_of<i64> { typedef u64 type; };\n"                                                               \
  "#define UNSIGNED(x) ((typename unsigned_of<T>::type)(x))\n"                                                                 \
  "template <class T> DEVICE T wrap_neg(T a) { return (T)(0 - UNSIGNED(a)); }\n"                                               \
  "template <class T> DEVICE T wrap_add(T a, T b) { return (T)(UNSIGNED(a) + UNSIGNED(b)); }\n"                                \
  "template <class T> DEVICE T wrap_sub(T a, T b) { return (T)(UNSIGNED(a) - UNSIGNED(b)); }\n"                                \
  "template <class T> DEVICE T wrap_mul(T a, T b) { return (T)(UNSIGNED(a) * UNSIGNED(b)); }\n"                                \
  "template <class T> DEVICE T wrap_div(T a, T b) { return b == 0 ? (T)0 : (T)-1 < 0 && b == (T)-1 ? wrap_neg(a) : a / b; }\n" \
  "template <class T> DEVICE T wrap_rem(T a, T b) { return b == 0 || ((T)-1 < 0 && b == (T)-1) ? (T)0 : a % b; }\n"            \
  "template <class T> DEVICE T shift_left(T a, T b) { return UNSIGNED(b) >= sizeof(T) * 8 ? (T)0 : (T)(UNSIGNED(a) << b); }\n" \
  "template <class T> DEVICE T shift_right(T a, T b) { return UNSIGNED(b) < sizeof(T) * 8 ? (T)(a >> b) : a < 0 ? (T)-1 : "    \
  "(T)0; }\n"                                                                                                                  \
  "template <class T> DEVICE T floor_div(T a, T b) { T q = a / b; return q - (a % b != 0 && a < 0); }\n"                       \
  "template <class T> DEVICE T floor_mod(T a, T b) { T r = a % b; return r < 0 ? r + b : r; }\n"                               \
  "template <class T> DEVICE T quotient_of(T a, T b) { return (T)(UNSIGNED(a) / UNSIGNED(b)); }\n"                             \
  "template <class T> DEVICE T remainder_of(T a, T b) { return (T)(UNSIGNED(a) % UNSIGNED(b)); }\n"                            \
  "template <class T> DEVICE T least(T a, T b) { return a < b ? a : b; }\n"                                                    \
  "template <class T> DEVICE T most(T a, T b) { return a > b ? a : b; }\n"                                                     \
  "DEVICE i32 abs_of(i32 a) { return a < 0 ? wrap_neg(a) : a; }\n"                                                             \
  "DEVICE i64 abs_of(i64 a) { return a < 0 ? wrap_neg(a) : a; }\n"

// Elements side by side between memory and registers.
#define TESSERA_COMMON_MOVE                                                                                 \
  "template <int bytes> struct chunk;\n"                                                                    \
  "#define MOVE(bytes, to, from) move<bytes>(to, from)\n"                                                   \
  "template <> struct chunk<2> { u16 a; };\n"                                                               \
  "template <> struct chunk<4> { u32 a; };\n"                                                               \
  "template <> struct alignas(8) chunk<8> { u32 a, b; };\n"                                                 \
  "template <> struct alignas(16) chunk<16> { u32 a, b, c, d; };\n"                                         \
  "template <int bytes, class T, class F> DEVICE void move(T* to, F* from) { *(chunk<bytes>*)to = *(const " \
  "chunk<bytes>*)from; }\n"

// CUDA's own functions of f64 are up to 2 ulp off, and its hypot of the largest number and a tiny one is infinite. asin is here
// x plus a polynomial of x^2, which interpolates at Chebyshev's nodes to 2^-57; beyond 1/2 it is pi/2 - 2 asin(sqrt((1-x)/2)),
// with what the root rounds off.
#define TESSERA_NEAR                                                                                                     \
  "DEVICE double library_asin(double x) {\n"                                                                             \
  "  const double kAsin[] = {0.028757851367421566, -0.014851887071247204, 0.01740087944269402, 0.005457506718640358, \n" \
  "      0.01032281435018578, 0.011479177415184906, 0.013971212973552933, 0.017352392720869973, \n"                      \
  "      0.02237217294214989, 0.030381944138531247, 0.04464285714635543, 0.07499999999998433, 0.16666666666666669};\n"   \
  "  const double a = abs_of(x);\n"                                                                                      \
  "  const bool far = a > 0.5;\n"                                                                                        \
  "  const double z = far ? (1.0 - a) * 0.5 : a * a, s = far ? sqrt_of(z) : a;\n"                                        \
  "  double p = kAsin[0];\n"                                                                                             \
  "  for (i32 i = 1; i < 13; ++i) p = fma_of(p, z, kAsin[i]);\n"                                                         \
  "  if (!far) return fma_of(x * z, p, x);\n"                                                                            \
  "  if (a == 1.0) return x * 1.5707963267948966;\n"                                                                     \
  "  const double low = fma_of(-s, s, z) / (s + s) + s * z * p, h = 0.78539816339744828 - s;\n"                          \
  "  const double y = 2.0 * (h + ((0.78539816339744828 - h - s - low) + 3.061616997868383e-17));\n"                      \
  "  return x < 0.0 ? -y : y;\n"                                                                                         \
  "}\n"                                                                                                                  \
  "DEVICE double library_hypot(double x, double y) {\n"                                                                  \
  "  const double p = abs_of(x), q = abs_of(y), a = p >= q ? p : q, b = p >= q ? q : p;\n"                               \
  "  return b <= a * 9.3132257461547852e-10 ? a : hypot(x, y);  // 2^-30: b is less than the rounding of a\n"            \
  "}\n"

constexpr const char* kCuda =
    "// CUDA C++ for NVRTC or nvcc, --fmad=false.\n" TESSERA_COMMON_TYPES
    "#define DEVICE static __device__ __forceinline__\n"
    "#define KERNEL(threads) extern \"C\" __global__ __launch_bounds__(threads)\n"
    "#define GLOBAL\n"
    "#define RESTRICT __restrict__\n"
    "#define SHARED(type, name, count, offset) __shared__ alignas(16) type name[count]\n"
    "#define DYNAMIC_SHARED extern __shared__ __align__(1024) u8 dynamic_shared[]\n"
    "#define SHARED_AT(type, name, count, offset) type* const name = (type*)(dynamic_shared + "
    "(offset))\n" TESSERA_COMMON_ARITHMETIC TESSERA_COMMON_MOVE
    "DEVICE u32 block_number() { return blockIdx.x; }\n"
    "DEVICE u32 thread_number() { return threadIdx.x; }\n"
    "DEVICE void barrier_block() { __syncthreads(); }\n"
    "DEVICE void barrier_warp() { __syncwarp(); }\n"
    "#define COPY(bytes, to, from, holds) copy<bytes>(to, from, holds)\n"
    "template <i32 bytes> DEVICE void copy(void* to, const void* from, bool holds) {\n"
    "  const u32 at = (u32)__cvta_generic_to_shared(to), n = holds ? bytes : 0;  // the rest is filled with zeros\n"
    "  if constexpr (bytes == 16)\n"
    "    asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" :: \"r\"(at), \"l\"(from), \"r\"(n) : \"memory\");\n"
    "  else\n"
    "    asm volatile(\"cp.async.ca.shared.global [%0], [%1], %2, %3;\" :: \"r\"(at), \"l\"(from), \"n\"(bytes), \"r\"(n) : "
    "\"memory\");\n"
    "}\n"
    "DEVICE void copy_end() { asm volatile(\"cp.async.commit_group;\" ::: \"memory\"); }\n"
    "#define copy_wait(but) asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(but) : \"memory\")\n"
    "template <class T> DEVICE T shuffle_xor(T v, i32 bits) { return __shfl_xor_sync(0xffffffffu, v, bits); }\n"
    "template <class T> DEVICE T shuffle_from(T v, i32 lane, i32 lanes) { return __shfl_sync(0xffffffffu, v, lane, lanes); }\n"
    "// A call: written out at every check, it is most of a kernel that checks much.\n"
    "static __device__ __noinline__ void raise(fault_record* r, u64 site, u32 code) {\n"
    "  if (r == 0 || *(volatile u32*)&r->claimed != 0 || atomicCAS(&r->claimed, 0u, 1u) != 0) return;\n"
    "  r->site = site;\n  r->values[0] = r->values[1] = 0;\n  __threadfence_system();\n"
    "  *(volatile u32*)&r->code = code;\n}\n"
    "DEVICE float as_float(u32 x) { return __uint_as_float(x); }\n"
    "DEVICE float as_float(i32 x) { return __int_as_float(x); }\n"
    "DEVICE double as_double(u64 x) { return __longlong_as_double((i64)x); }\n"
    "DEVICE double as_double(i64 x) { return __longlong_as_double(x); }\n"
    "DEVICE i32 as_i32(float x) { return __float_as_int(x); }\n"
    "DEVICE u32 as_u32(float x) { return __float_as_uint(x); }\n"
    "DEVICE i64 as_i64(double x) { return __double_as_longlong(x); }\n"
    "DEVICE u64 as_u64(double x) { return (u64)__double_as_longlong(x); }\n"
    "DEVICE i32 as_i32(u32 x) { return (i32)x; }\n"
    "DEVICE u32 as_u32(i32 x) { return (u32)x; }\n"
    "DEVICE i64 as_i64(u64 x) { return (i64)x; }\n"
    "DEVICE u64 as_u64(i64 x) { return (u64)x; }\n"
    "DEVICE float abs_of(float x) { return fabsf(x); }\n"
    "DEVICE double abs_of(double x) { return fabs(x); }\n"
    "DEVICE float sqrt_of(float x) { return __fsqrt_rn(x); }\n"
    "DEVICE double sqrt_of(double x) { return __dsqrt_rn(x); }\n"
    "DEVICE float floor_of(float x) { return floorf(x); }\n"
    "DEVICE double floor_of(double x) { return floor(x); }\n"
    "DEVICE float ceil_of(float x) { return ceilf(x); }\n"
    "DEVICE double ceil_of(double x) { return ceil(x); }\n"
    "DEVICE float trunc_of(float x) { return truncf(x); }\n"
    "DEVICE double trunc_of(double x) { return trunc(x); }\n"
    "DEVICE float round_of(float x) { return rintf(x); }\n"
    "DEVICE double round_of(double x) { return rint(x); }\n"
    "DEVICE float fma_of(float a, float b, float c) { return __fmaf_rn(a, b, c); }\n"
    "DEVICE double fma_of(double a, double b, double c) { return __fma_rn(a, b, c); }\n"
    "template <class T> DEVICE T popcount_of(T x) { return sizeof(T) == 8 ? (T)__popcll((u64)x) : (T)__popc((u32)x); }\n"
    "DEVICE float widen_bf16(u16 h) {\n  float x;\n"
    "  asm(\"mov.b32 %0, {%1, %2};\" : \"=f\"(x) : \"h\"((u16)0), \"h\"(h));\n  return x;\n}\n"
    "DEVICE u16 cut_bf16(float x) { return (u16)(as_u32(x) >> 16); }\n"
    "// Two at once, of which one is 0: conversions of one run at a quarter of the rate. NaN becomes 0x7fff.\n"
    "DEVICE u16 narrow_bf16(float x) {\n  u32 h;\n"
    "  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(h) : \"f\"(0.0f), \"f\"(x));\n  return (u16)h;\n}\n"
    "DEVICE float round_bf16(float x) {\n  u32 b;\n"
    "  asm(\"cvt.rn.bf16x2.f32 %0, %1, %2;\" : \"=r\"(b) : \"f\"(x), \"f\"(0.0f));\n  return as_float(b);\n}\n"
    "DEVICE float widen_f16(u16 h) {\n  float x;\n  asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(x) : \"h\"(h));\n  return x;\n}\n"
    "DEVICE u16 narrow_f16(float x) {\n  u16 h;\n  asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x));\n"
    "  return x != x ? (u16)0x7e00 : h;\n}\n"
    "#define MMA(name, type) DEVICE void name(float* d, const u16* a, const u16* b) {\\\n"
    "  const u32 *x = (const u32*)a, *y = (const u32*)b;\\\n"
    "  asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.\" type \".\" type \".f32 \"\\\n"
    "    \"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\"\\\n"
    "    : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\\\n"
    "    : \"r\"(x[0]), \"r\"(x[1]), \"r\"(x[2]), \"r\"(x[3]), \"r\"(y[0]), \"r\"(y[1])); }\n"
    "MMA(mma_bf16, \"bf16\")\nMMA(mma_f16, \"f16\")\n"
    "#define LIBRARY(f) DEVICE double library_##f(double x) { return f(x); }\n"
    "LIBRARY(exp) LIBRARY(exp2) LIBRARY(expm1) LIBRARY(log) LIBRARY(log2) LIBRARY(log10) LIBRARY(log1p) LIBRARY(sin) "
    "LIBRARY(cos)\n"
    "LIBRARY(tan) LIBRARY(acos) LIBRARY(atan) LIBRARY(sinh) LIBRARY(cosh) LIBRARY(tanh) LIBRARY(asinh) "
    "LIBRARY(acosh)\n"
    "LIBRARY(atanh) LIBRARY(erf)\n" TESSERA_NEAR
    "#define LIBRARY2(f) DEVICE double library_##f(double x, double y) { return f(x, y); }\n"
    "LIBRARY2(pow) LIBRARY2(atan2) LIBRARY2(fmod)\n";

// What clang's builtins give alike on a GPU and on the host.
#define TESSERA_BUILTINS                                                                                      \
  "DEVICE float as_float(u32 x) { return __builtin_bit_cast(float, x); }\n"                                   \
  "DEVICE float as_float(i32 x) { return __builtin_bit_cast(float, x); }\n"                                   \
  "DEVICE double as_double(u64 x) { return __builtin_bit_cast(double, x); }\n"                                \
  "DEVICE double as_double(i64 x) { return __builtin_bit_cast(double, x); }\n"                                \
  "DEVICE i32 as_i32(float x) { return __builtin_bit_cast(i32, x); }\n"                                       \
  "DEVICE u32 as_u32(float x) { return __builtin_bit_cast(u32, x); }\n"                                       \
  "DEVICE i64 as_i64(double x) { return __builtin_bit_cast(i64, x); }\n"                                      \
  "DEVICE u64 as_u64(double x) { return __builtin_bit_cast(u64, x); }\n"                                      \
  "DEVICE i32 as_i32(u32 x) { return (i32)x; }\n"                                                             \
  "DEVICE u32 as_u32(i32 x) { return (u32)x; }\n"                                                             \
  "DEVICE i64 as_i64(u64 x) { return (i64)x; }\n"                                                             \
  "DEVICE u64 as_u64(i64 x) { return (u64)x; }\n"                                                             \
  "DEVICE float abs_of(float x) { return __builtin_fabsf(x); }\n"                                             \
  "DEVICE double abs_of(double x) { return __builtin_fabs(x); }\n"                                            \
  "DEVICE float sqrt_of(float x) { return __builtin_sqrtf(x); }\n"                                            \
  "DEVICE double sqrt_of(double x) { return __builtin_sqrt(x); }\n"                                           \
  "DEVICE float floor_of(float x) { return __builtin_floorf(x); }\n"                                          \
  "DEVICE double floor_of(double x) { return __builtin_floor(x); }\n"                                         \
  "DEVICE float ceil_of(float x) { return __builtin_ceilf(x); }\n"                                            \
  "DEVICE double ceil_of(double x) { return __builtin_ceil(x); }\n"                                           \
  "DEVICE float trunc_of(float x) { return __builtin_truncf(x); }\n"                                          \
  "DEVICE double trunc_of(double x) { return __builtin_trunc(x); }\n"                                         \
  "DEVICE float round_of(float x) { return __builtin_rintf(x); }\n"                                           \
  "DEVICE double round_of(double x) { return __builtin_rint(x); }\n"                                          \
  "DEVICE float fma_of(float a, float b, float c) { return __builtin_fmaf(a, b, c); }\n"                      \
  "DEVICE double fma_of(double a, double b, double c) { return __builtin_fma(a, b, c); }\n"                   \
  "template <class T> DEVICE T popcount_of(T x) { return sizeof(T) == 8 ? (T)__builtin_popcountll((u64)x) : " \
  "(T)__builtin_popcount((u32)x); }\n"                                                                        \
  "DEVICE float widen_bf16(u16 h) { return as_float((u32)h << 16); }\n"                                       \
  "DEVICE u16 cut_bf16(float x) { return (u16)(as_u32(x) >> 16); }\n"                                         \
  "DEVICE u16 narrow_bf16(float x) {\n  const u32 b = as_u32(x);\n"                                           \
  "  return x != x ? (u16)0x7fc0 : (u16)((b + 0x7fffu + ((b >> 16) & 1u)) >> 16);\n}\n"                       \
  "DEVICE float round_bf16(float x) { return widen_bf16(narrow_bf16(x)); }\n"

constexpr const char* kHip =
    "// C++ for amdgcn, clang -x hip -nogpuinc, -ffp-contract=off.\n" TESSERA_COMMON_TYPES
    "#define DEVICE static __attribute__((device)) __attribute__((always_inline)) inline\n"
    "#define GLOBAL\n"
    "#define KERNEL(threads) extern \"C\" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, "
    "threads)))\n"
    "#define RESTRICT __restrict__\n"
    "#define SHARED(type, name, count, offset) alignas(16) static __attribute__((shared)) type name[count]\n"
    "#define DYNAMIC_SHARED extern __attribute__((shared)) __attribute__((aligned(16))) u8 dynamic_shared[]\n"
    "#define SHARED_AT(type, name, count, offset) type* const name = (type*)(dynamic_shared + "
    "(offset))\n" TESSERA_COMMON_ARITHMETIC TESSERA_COMMON_MOVE TESSERA_BUILTINS
    "DEVICE u32 block_number() { return __builtin_amdgcn_workgroup_id_x(); }\n"
    "DEVICE u32 thread_number() { return __builtin_amdgcn_workitem_id_x(); }\n"
    "DEVICE void barrier_block() {\n  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"workgroup\");\n  "
    "__builtin_amdgcn_s_barrier();\n"
    "  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"workgroup\");\n}\n"
    "DEVICE void barrier_warp() {\n  __builtin_amdgcn_fence(__ATOMIC_RELEASE, \"wavefront\");\n  "
    "__builtin_amdgcn_wave_barrier();\n"
    "  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, \"wavefront\");\n}\n"
    "DEVICE u32 lane_number() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }\n"
    "template <class T> DEVICE T shuffle_lane(T v, u32 from) {\n  union { T v; i32 part[sizeof(T) / 4]; } x;\n  x.v = v;\n"
    "  for (unsigned i = 0; i < sizeof(T) / 4; ++i) x.part[i] = __builtin_amdgcn_ds_bpermute((i32)from * 4, x.part[i]);\n  "
    "return x.v;\n}\n"
    "template <class T> DEVICE T shuffle_xor(T v, i32 bits) { return shuffle_lane(v, lane_number() ^ (u32)bits); }\n"
    "template <class T> DEVICE T shuffle_from(T v, i32 lane, i32 lanes) {\n  return shuffle_lane(v, lane_number() / (u32)lanes "
    "* (u32)lanes + (u32)lane);\n}\n"
    "static __attribute__((device)) __attribute__((noinline)) void raise(fault_record* r, u64 site, u32 code) {\n"
    "  if (r == 0 || __atomic_exchange_n(&r->claimed, 1u, __ATOMIC_ACQUIRE) != 0) return;\n"
    "  r->site = site;\n  r->values[0] = r->values[1] = 0;\n"
    "  __atomic_store_n(&r->code, code, __ATOMIC_RELEASE);\n}\n"
    "DEVICE float widen_f16(u16 h) { return (float)__builtin_bit_cast(_Float16, h); }\n"
    "DEVICE u16 narrow_f16(float x) { return x != x ? (u16)0x7e00 : __builtin_bit_cast(u16, (_Float16)x); }\n";

constexpr const char* kSim =
    "// C++ for the host, -ffp-contract=off. Threads are fibers; what they share goes through the "
    "runner.\n" TESSERA_COMMON_TYPES
    "#define DEVICE static inline __attribute__((always_inline))\n"
    "#define KERNEL(threads) extern \"C\"\n"
    "#define GLOBAL\n"
    "#define RESTRICT __restrict__\n"
    "#define SHARED(type, name, count, offset) shared_array<type> name{(type*)(runner->shared() + (offset)), count, __LINE__}\n"
    "#define DYNAMIC_SHARED\n#define SHARED_AT SHARED\n"
    "#pragma GCC diagnostic ignored \"-Wunknown-pragmas\"\n" TESSERA_COMMON_ARITHMETIC TESSERA_COMMON_MOVE TESSERA_BUILTINS
    "struct text_runner_api {\n"
    "  u32 (*block)();\n  u32 (*thread)();\n  char* (*shared)();\n  void (*barrier)(i32 block, i32 line);\n"
    "  u64 (*shuffle)(u64 v, i32 exchange, i32 lane, i32 lanes, i32 line);\n"
    "  void (*touch)(const void* at, u32 bytes, i32 store, i32 line);\n"
    "  void (*watch)(i32 argument, u32 element_bytes, i32 written);\n"
    "  void (*touch_global)(const void* at, u32 bytes, i32 store, i32 line, i32 argument);\n"
    "  void (*raise)(fault_record* record, u64 site, u32 code);\n};\n"
    "static const text_runner_api* runner;\n"
    "extern \"C\" void text_runner_bind(const text_runner_api* api) { runner = api; }\n"
    "#define block_number() runner->block()\n"
    "#define thread_number() runner->thread()\n"
    "#define barrier_block() runner->barrier(1, __LINE__)\n"
    "#define barrier_warp() runner->barrier(0, __LINE__)\n"
    "#define raise(record, site, code) runner->raise(record, site, code)\n"
    "template <class T> u64 to_bits(T v) { u64 x = 0; __builtin_memcpy(&x, &v, sizeof v); return x; }\n"
    "template <class T> T of_bits(u64 x) { T v; __builtin_memcpy(&v, &x, sizeof v); return v; }\n"
    "#define shuffle_xor(v, bits) of_bits<decltype(v + 0)>(runner->shuffle(to_bits(v + 0), 0, bits, 0, __LINE__))\n"
    "#define shuffle_from(v, lane, lanes) of_bits<decltype(v + 0)>(runner->shuffle(to_bits(v + 0), 1, lane, lanes, __LINE__))\n"
    "// An element of shared memory: what is read and written is told to the runner.\n"
    "template <class T> struct shared_element {\n  T* at;\n  i32 line;\n"
    "  operator T() const { runner->touch(at, sizeof(T), 0, line); return *at; }\n"
    "  void operator=(T v) const { runner->touch(at, sizeof(T), 1, line); *at = v; }\n};\n"
    "// The line of an access is that of the text that makes it.\n"
    "struct place { i64 i; i32 line; place(i64 at, i32 l = __builtin_LINE()) : i(at), line(l) {} };\n"
    "template <class T> struct shared_array {\n  T* at;\n  i64 count;\n  i32 line;\n"
    "  shared_element<T> operator[](place p) const {\n"
    "    if (p.i < 0 || p.i >= count) runner->touch(0, 0, 0, p.line);\n    return {at + p.i, p.line};\n  }\n"
    "  shared_array operator+(place p) const { return {at + p.i, count - p.i, p.line}; }\n};\n"
    "// The same of global memory: an argument of the kernel. Whether it is written tells the type.\n"
    "template <class T> struct is_constant { enum { value = 0 }; };\n"
    "template <class T> struct is_constant<const T> { enum { value = 1 }; };\n"
    "template <class T> struct bare_type { typedef T type; };\n"
    "template <class T> struct bare_type<const T> { typedef T type; };\n"
    "template <class T> struct global_element {\n  T* at;\n  i32 line, argument;\n  typedef typename bare_type<T>::type bare;\n"
    "  operator bare() const { runner->touch_global(at, sizeof(T), 0, line, argument); return *at; }\n"
    "  void operator=(bare v) const { runner->touch_global(at, sizeof(T), 1, line, argument); *at = v; }\n};\n"
    "template <class T> struct global_array {\n  T* at;\n  i32 argument, line;\n"
    "  global_array(T* a, i32 n) : at(a), argument(n), line(0) { runner->watch(n, sizeof(T), !is_constant<T>::value); }\n"
    "  global_array(T* a, i32 n, i32 l) : at(a), argument(n), line(l) {}\n"
    "  global_element<T> operator[](place p) const { return {at + p.i, p.line, argument}; }\n"
    "  global_array operator+(place p) const { return {at + p.i, argument, p.line}; }\n};\n"
    "#define WATCHED(type, name, argument) const global_array<type> name(name##_memory, argument)\n"
    "template <int bytes, class T, class F> DEVICE void move(const global_array<T>& to, F* from) {\n"
    "  runner->touch_global(to.at, bytes, 1, to.line, to.argument);\n  move<bytes>(to.at, from);\n}\n"
    "template <int bytes, class T, class F> DEVICE void move(T* to, const global_array<F>& from) {\n"
    "  runner->touch_global(from.at, bytes, 0, from.line, from.argument);\n  move<bytes>(to, from.at);\n}\n"
    "template <int bytes, class T, class F> DEVICE void move(shared_array<T> to, F* from) {\n"
    "  runner->touch(to.at, bytes, 1, to.line);\n  move<bytes>(to.at, from);\n}\n"
    "template <int bytes, class T, class F> DEVICE void move(T* to, shared_array<F> from) {\n"
    "  runner->touch(from.at, bytes, 0, from.line);\n  move<bytes>(to, from.at);\n}\n"
    "// At once: the interpreter of programs is who finds what does not wait.\n"
    "#define COPY(bytes, to, from, holds) copy<bytes>(to, from, holds)\n"
    "template <int bytes, class T, class F> DEVICE void copy(shared_array<T> to, F* from, bool holds) {\n"
    "  const chunk<bytes> zeros = {};\n"
    "  if (holds) move<bytes>(to, from);\n  else move<bytes>(to, &zeros);\n}\n"
    "template <int bytes, class T, class F> DEVICE void copy(shared_array<T> to, const global_array<F>& from, bool holds) {\n"
    "  if (holds) runner->touch_global(from.at, bytes, 0, from.line, from.argument);\n  copy<bytes>(to, from.at, holds);\n}\n"
    "DEVICE void copy_end() {}\nDEVICE void copy_wait(i32) {}\n"
    "DEVICE float widen_f16(u16 h) {\n  const u32 mag = h & 0x7fffu, sign = (u32)(h & 0x8000u) << 16;\n"
    "  if (mag >= 0x7c00u) return as_float(sign | 0x7f800000u | (mag & 0x3ffu ? 0x400000u | (mag & 0x3ffu) << 13 : 0u));\n"
    "  return mag < 0x400u ? as_float(sign | as_u32((float)mag * 5.9604644775390625e-08f))\n"
    "                      : as_float(sign | ((mag << 13) + 0x38000000u));\n}\n"
    "DEVICE u16 narrow_f16(float x) {\n  const u32 raw = as_u32(x), mag = raw & 0x7fffffffu, sign = (raw ^ mag) >> 16;\n"
    "  if (mag > 0x7f800000u) return (u16)0x7e00;\n  if (mag >= 0x47800000u) return (u16)(sign | 0x7c00u);\n"
    "  if (mag < 0x38800000u) return (u16)(sign | (as_u32(as_float(mag) + 0.5f) - 0x3f000000u));\n"
    "  return (u16)(sign | ((mag + 0xc8000fffu + ((mag >> 13) & 1u)) >> 13));\n}\n"
    "// Every lane gets the rows and columns of its sums from those who hold them, 8 bytes at a time.\n"
    "template <float (*widen)(u16)> void mma_of(float* d, const u16* a, const u16* b, i32 line) {\n"
    "  const i32 lane = (i32)(runner->thread() % 32), row = lane / 4, column = 2 * (lane % 4);\n"
    "  u64 left[2][4], right[2][4];\n"
    "  for (i32 h = 0; h < 2; ++h)\n    for (i32 q = 0; q < 4; ++q) {\n      u64 x, y;\n"
    "      __builtin_memcpy(&x, a + 4 * h, 8);\n      __builtin_memcpy(&y, b, 8);\n"
    "      left[h][q] = runner->shuffle(x, 1, row * 4 + q, 32, line);\n"
    "      right[h][q] = runner->shuffle(y, 1, (column + h) * 4 + q, 32, line);\n    }\n"
    "  for (i32 e = 0; e < 4; ++e)\n    for (i32 k = 0; k < 16; ++k) {\n"
    "      const u64 x = left[k / 8][k % 8 / 2] >> (16 * (e / 2 * 2 + k % 2)), y = right[e % 2][k % 8 / 2] >> (16 * (k / 8 * 2 "
    "+ k % "
    "2));\n"
    "      d[e] = fma_of(widen((u16)x), widen((u16)y), d[e]);\n    }\n}\n"
    "#define mma_bf16(d, a, b) mma_of<widen_bf16>(d, a, b, __LINE__)\n"
    "#define mma_f16(d, a, b) mma_of<widen_f16>(d, a, b, __LINE__)\n"
    "#define LIBRARY(f) DEVICE double library_##f(double x) { return __builtin_##f(x); }\n"
    "LIBRARY(exp) LIBRARY(exp2) LIBRARY(expm1) LIBRARY(log) LIBRARY(log2) LIBRARY(log10) LIBRARY(log1p) LIBRARY(sin) "
    "LIBRARY(cos)\n"
    "LIBRARY(tan) LIBRARY(asin) LIBRARY(acos) LIBRARY(atan) LIBRARY(sinh) LIBRARY(cosh) LIBRARY(tanh) LIBRARY(asinh) "
    "LIBRARY(acosh)\n"
    "LIBRARY(atanh) LIBRARY(erf)\n"
    "#define LIBRARY2(f) DEVICE double library_##f(double x, double y) { return __builtin_##f(x, y); }\n"
    "LIBRARY2(pow) LIBRARY2(atan2) LIBRARY2(hypot) LIBRARY2(fmod)\n"
    "// Arguments by address.\n"
    "template <class... All> void call(void (*f)(All...), void* const* a) {\n  unsigned i = 0;\n"
    "  struct in_order { in_order(void (*g)(All...), All... x) { g(x...); } };\n  in_order{f, *(All*)a[i++]...};\n}\n";

}  // namespace

const GpuDialect& cuda_dialect() {
  static const GpuDialect d{"cuda", kCuda, false, false, "ll", cuda_group_text};
  return d;
}
const GpuDialect& hip_dialect() {
  static const GpuDialect d{"hip", kHip, false, false};
  return d;
}
const GpuDialect& sim_dialect() {
  static const GpuDialect d{"sim", kSim, true, true, "ll", sim_group_text};
  return d;
}

}  // namespace tessera::kit
