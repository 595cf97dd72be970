// SPDX-License-Identifier: Apache-2.0
// Reduction of any set of axes, any strides and dtype, in the order of isa/reduce_order.hpp whatever the layout.
#pragma once

#include <span>

#include "build.hpp"

namespace eager {

// The loops of a reduction: kept dims (in the order of the result) and reduced dims (in the order of x).
struct ReducePlan {
  Nest<1> kept, reduced;
  int64_t outputs = 1, extent = 1;
};
ReducePlan plan_reduction(const View& x, std::span<const int> axes);

// The `n` elements from `start` on of the reduced dims at kept offset `base`, as a contiguous run of the compute type: a
// pointer into memory where possible, else `buffer` (n elements) filled.
const void* reduced_run(const Isa& isa, const View& x, const ReducePlan& plan, int64_t base, int64_t start, int64_t n,
                        void* buffer);

// Bytes of workspace for a reduction of these sizes, for partial results of chunks.
int64_t reduce_workspace(const Dims& sizes, std::span<const int> axes);

// What happens to elements before they are combined. `center`: one value of the compute type per result.
enum class ReduceMap : uint8_t { None, Center, CenterExp, Abs, NonZero, PowAbs };
struct ReduceSpec {
  Reduce kind = Reduce::Sum;
  ReduceMap map = ReduceMap::None;  // others: f32 and f64 only
  const void* center = nullptr;
  double power = 0;
  bool serial = false;  // `store` is called from one thread: packed results share bytes
};

// Result i (compute type of x) is handed to `store(first, count, values)` in pieces of at most 64, from several threads unless
// `serial`.
void reduce(const Isa& isa, const ReduceSpec& spec, const View& x, std::span<const int> axes, void* workspace,
            FunctionRef<void(int64_t first, int64_t count, const void* values)> store);

}  // namespace eager
