// SPDX-License-Identifier: Apache-2.0
// Products and convolutions of oneDNN: the ways that max_autotune measures beside our own. Sizes are numbers, weights
// constants, values f32; behind them a residual and relu, as oneDNN has them. It runs on OpenMP's threads, always as many as
// when the kernel was made, so that its bits do not depend on them.
#pragma once

#include <memory>

#include "product.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Whether this build has it.
bool have_onednn();
// Null: oneDNN has nothing but a reference implementation for it, or this is none of what stands above.
std::unique_ptr<tessera::sdk::Kernel> make_onednn_product(const tessera::sdk::Compile& c, const tessera::sdk::Node& product,
                                                          const ProductAxes& axes);
std::unique_ptr<tessera::sdk::Kernel> make_onednn_conv(const tessera::sdk::Compile& c, const tessera::sdk::Node& conv);

}  // namespace cpu
