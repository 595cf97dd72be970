// SPDX-License-Identifier: Apache-2.0
// Ops that work on rows (softmax, normalisations): a row is the elements along some axes, whatever their strides and dtype; the
// kernel sees it as contiguous values of the compute type.
#pragma once

#include <span>

#include "build.hpp"

namespace eager {

// Bytes of workspace that for_rows may use.
int64_t rows_workspace(const Dims& sizes, std::span<const int> axes, uint32_t dtype);

// Calls f(row, x, y) for every row, from several threads: x and y are n contiguous values of comp_of(x.dtype); f fills y, which
// may be x. `out` is dense with the sizes and dtype of x. Rows count in row-major order of the other axes.
void for_rows(const Isa& isa, const View& x, const tsr_tensor& out, std::span<const int> axes, void* workspace,
              FunctionRef<void(int64_t row, const void* x, void* y, int64_t n)> f);

// The same without a result: f only reads. Rows may come in any order, from several threads.
int64_t read_rows_workspace(const Dims& sizes, std::span<const int> axes, uint32_t dtype);
void read_rows(const Isa& isa, const View& x, std::span<const int> axes, void* workspace,
               FunctionRef<void(int64_t row, const void* x, int64_t n)> f);

// n elements of a tensor as contiguous values of its compute type: in place, or converted into `buffer`.
const void* flat_values(const Isa& isa, const tsr_tensor& t, void* buffer);

}  // namespace eager
