// SPDX-License-Identifier: Apache-2.0
// Names with external linkage of the files that are compiled once per ISA: EAGER_ISA(f) is f_baseline, f_avx2 or f_avx512.
// Nothing else in these files may have external linkage, inline functions of headers included: the linker would keep one copy
// for all ISAs.
#pragma once

#include "../tile.hpp"

#define EAGER_CAT2(a, b) a##_##b
#define EAGER_CAT(a, b)  EAGER_CAT2(a, b)
#define EAGER_ISA(name)  EAGER_CAT(name, EAGER_ISA_NAME)

#if defined(__AVX512F__)
#define EAGER_VECTOR_BYTES 64
#elif defined(__AVX2__)
#define EAGER_VECTOR_BYTES 32
#else
#define EAGER_VECTOR_BYTES 16
#endif

namespace eager {

TileFn EAGER_ISA(find_tile)(Op, Comp);
ChunkFn EAGER_ISA(find_chunk)(Reduce, Comp);
ColumnFn EAGER_ISA(find_column)(Reduce, Comp);
void EAGER_ISA(f16_to_f32)(const uint16_t*, float*, int64_t);
void EAGER_ISA(f32_to_f16)(const float*, uint16_t*, int64_t);
void EAGER_ISA(bf16_to_f32)(const uint16_t*, float*, int64_t);
void EAGER_ISA(f32_to_bf16)(const float*, uint16_t*, int64_t);
void EAGER_ISA(fill_rows)(RowFns<float>&, RowFns<double>&);
void EAGER_ISA(gemm)(const GemmArgs&);
void EAGER_ISA(attention)(const AttentionArgs&);
void EAGER_ISA(philox)(uint64_t, uint64_t, int64_t, uint32_t*);
void EAGER_ISA(box_muller)(const uint32_t*, int64_t, float*);

}  // namespace eager
