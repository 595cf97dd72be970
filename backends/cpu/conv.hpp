// SPDX-License-Identifier: Apache-2.0
// Convolution as a product without its matrix: rows are output channels, columns output positions, and the panels of input values that
// micro-kernels read are gathered right before they are used (implicit GEMM). Weights that are constants are packed once.
#pragma once

#include <memory>

#include "gemm/gemm.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Null: this backend takes the node; else the reason why not.
const char* refuse_conv(const tessera::sdk::Node& node);
// `most_winograd`: the largest size of blocks of minimal filtering (winograd/winograd.hpp), 0 for none.
std::unique_ptr<tessera::sdk::Kernel> make_conv(const tessera::sdk::Compile& c, const Isa& isa, int most_winograd);

}  // namespace cpu
