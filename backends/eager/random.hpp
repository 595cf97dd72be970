// SPDX-License-Identifier: Apache-2.0
// Factories of random ops. docs/random.md defines every bit.
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_random_bits(const Build&, int);
KernelPtr make_random_uniform(const Build&, int);
KernelPtr make_random_normal(const Build&, int);
KernelPtr make_random_int(const Build&, int);
KernelPtr make_dropout(const Build&, int);

}  // namespace eager
