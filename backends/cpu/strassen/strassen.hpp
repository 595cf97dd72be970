// SPDX-License-Identifier: Apache-2.0
// Products with constant weights by one step of Strassen's algorithm (strassen/tables.hpp): seven eighths of the
// multiplications. The sums of the weights' quarters are made when they are packed, which takes 7/4 of their memory.
//
// Bits. A result depends on its row's partner too, within rounding; which rows are partners depends on M alone, so results are
// the same for any number of threads. Root mean square errors are 1.2 to 1.4 times those of the plain product. What must not be
// mixed is multiplied plainly, block of rows by block of rows: where a row of A has an element that is not finite, whose
// largest magnitude is not between 2^-40 and 2^40, or mostly zeros, as rows that select have (the plain product of these is
// exact). Rows of zeros give zeros.
#pragma once

#include <cstdint>

#include "gemm/gemm.hpp"
#include "strassen/tables.hpp"

namespace cpu {

const StrassenIsa& strassen_kernels(const GemmIsa& isa);

// Whether it is predicted to take less time than the plain product with packed weights.
bool strassen_pays(const GemmIsa& isa, int64_t m, int64_t n, int64_t k);

// B of one f32 matrix as strassen_run reads it, for any M. Where its values do not suit (not finite, columns of magnitudes
// beyond 2^-40 and 2^40, or of mostly zeros) the form holds what pack_matrix writes.
int64_t strassen_packed_bytes(const GemmIsa& isa, int64_t n, int64_t k);
void strassen_pack(const GemmIsa& isa, const float* b, const Nest<1>& n, const Nest<2>& k, char* to);
// Null: the form holds sums; else where pack_matrix's form is.
const char* strassen_plain_form(const char* packed);

int64_t strassen_workspace(const GemmIsa& isa, int64_t m, int64_t n, int64_t k, int slots);
// C[m, n] of f32 as gemm_run computes it with bias and steps: `g.packed_b` is what strassen_pack wrote, elements of K of A lie
// side by side, there is no batch. Reentrant; allocates nothing.
void strassen_run(const Gemm& g, void* workspace, int slots);

}  // namespace cpu
