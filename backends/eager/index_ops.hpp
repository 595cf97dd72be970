// SPDX-License-Identifier: Apache-2.0
// Factories of indexing ops (gather_scatter.cpp), sorting (sort.cpp) and ops with data-dependent sizes (unbacked.cpp).
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_gather(const Build&, int embedding);
KernelPtr make_take_along_axis(const Build&, int);
KernelPtr make_gather_nd(const Build&, int);
KernelPtr make_scatter(const Build&, int);
KernelPtr make_scatter_nd(const Build&, int);

KernelPtr make_sort(const Build&, int);
KernelPtr make_topk(const Build&, int);
KernelPtr make_searchsorted(const Build&, int);

KernelPtr make_nonzero(const Build&, int);
KernelPtr make_masked_select(const Build&, int);
KernelPtr make_unique(const Build&, int);
KernelPtr make_dynamic_reshape(const Build&, int);
KernelPtr make_dynamic_broadcast_to(const Build&, int);

}  // namespace eager
