// SPDX-License-Identifier: Apache-2.0
// Factories of the elementwise ops; the argument is the Op.
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_unary(const Build&, int op);
KernelPtr make_activation(const Build&, int op);  // unary with attributes
KernelPtr make_binary(const Build&, int op);
KernelPtr make_select(const Build&, int);
KernelPtr make_clamp(const Build&, int);
KernelPtr make_cast(const Build&, int);
KernelPtr make_bitcast(const Build&, int);

}  // namespace eager
