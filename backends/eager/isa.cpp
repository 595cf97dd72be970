// SPDX-License-Identifier: Apache-2.0
// The tables of what was compiled per ISA, and which of them this machine can run.
#include "tile.hpp"

#define EAGER_DECLARE(isa)                                                   \
  TileFn find_tile_##isa(Op, Comp);                                          \
  ChunkFn find_chunk_##isa(Reduce, Comp);                                    \
  ColumnFn find_column_##isa(Reduce, Comp);                                  \
  void f16_to_f32_##isa(const uint16_t*, float*, int64_t);                   \
  void f32_to_f16_##isa(const float*, uint16_t*, int64_t);                   \
  void bf16_to_f32_##isa(const uint16_t*, float*, int64_t);                  \
  void f32_to_bf16_##isa(const float*, uint16_t*, int64_t);                  \
  void fill_rows_##isa(RowFns<float>&, RowFns<double>&);                     \
  void gemm_##isa(const GemmArgs&);                                          \
  void attention_##isa(const AttentionArgs&);                                \
  void philox_##isa(uint64_t, uint64_t, int64_t, uint32_t*);                 \
  void box_muller_##isa(const uint32_t*, int64_t, float*);                   \
  static Isa table_##isa(bool onednn) {                                      \
    Isa t{#isa,                                                              \
          onednn,                                                            \
          find_tile_##isa,                                                   \
          find_chunk_##isa,                                                  \
          find_column_##isa,                                                 \
          f16_to_f32_##isa,                                                  \
          f32_to_f16_##isa,                                                  \
          bf16_to_f32_##isa,                                                 \
          f32_to_bf16_##isa,                                                 \
          {},                                                                \
          {},                                                                \
          gemm_##isa,                                                        \
          attention_##isa,                                                   \
          philox_##isa,                                                      \
          box_muller_##isa};                                                 \
    fill_rows_##isa(t.row_f32, t.row_f64);                                   \
    return t;                                                                \
  }                                                                          \
  static const Isa* make_##isa(bool onednn) {                                \
    static const Isa with = table_##isa(true), without = table_##isa(false); \
    return onednn ? &with : &without;                                        \
  }

namespace eager {

EAGER_DECLARE(baseline)
const Isa* isa_baseline(bool onednn) { return make_baseline(onednn); }

#if EAGER_HAVE_X86
EAGER_DECLARE(avx2)
EAGER_DECLARE(avx512)
const Isa* isa_avx2(bool onednn) {
  const bool ok = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return ok ? make_avx2(onednn) : nullptr;
}
const Isa* isa_avx512(bool onednn) {
  const bool ok = isa_avx2(onednn) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  return ok ? make_avx512(onednn) : nullptr;
}
#else
const Isa* isa_avx2(bool) { return nullptr; }
const Isa* isa_avx512(bool) { return nullptr; }
#endif

}  // namespace eager
