// SPDX-License-Identifier: Apache-2.0
// Factories of reductions (reduce_ops.cpp) and of arg-reductions and scans (scan.cpp).
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_reduce(const Build&, int kind);  // a Reduce: sum, prod, max, min (any and all too)
KernelPtr make_mean(const Build&, int);
KernelPtr make_variance(const Build&, int);
KernelPtr make_logsumexp(const Build&, int);
KernelPtr make_norm(const Build&, int);
KernelPtr make_sum_to(const Build&, int);

KernelPtr make_arg_reduce(const Build&, int least);
KernelPtr make_cumulative(const Build&, int product);
KernelPtr make_cumulative_extreme(const Build&, int least);

}  // namespace eager
