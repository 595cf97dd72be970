// SPDX-License-Identifier: Apache-2.0
// Which outputs of a kernel may lie where its inputs do.
#pragma once

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

// Whether every load of a point comes before the stores of that point, in which case outputs that are computed element by
// element may lie where their operands do: TSR_KERNEL_POINTWISE.
bool reads_before_writing(const Kernel& k);

}  // namespace tessera::kit
