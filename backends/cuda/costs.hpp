// SPDX-License-Identifier: Apache-2.0
// How long the matrix units take, for estimates.
#pragma once

#include "gpu.hpp"
#include "tessera/plugin.hpp"

namespace tessera::cuda {

// Seconds of a product or of attention of known sizes whose operands the matrix units take; negative: it is none.
double matrix_seconds(const Gpu& gpu, sdk::Node node);

}  // namespace tessera::cuda
