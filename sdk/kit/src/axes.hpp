// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

// Joins neighbouring axes (parallel ones; those of the loops) that every index walks as one, so that contiguous tensors have
// one long axis. The order of points is kept, and with it that of reductions.
void merge_axes(Kernel& k);

}  // namespace tessera::kit
