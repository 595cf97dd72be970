// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "build.hpp"

namespace eager {

KernelPtr make_attention(const Build&, int);

}  // namespace eager
