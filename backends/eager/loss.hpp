// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_cross_entropy(const Build&, int);
KernelPtr make_mse_loss(const Build&, int);

}  // namespace eager
