// SPDX-License-Identifier: Apache-2.0
// A depthwise convolution together with the convolution of one tap that makes its input, as in inverted residual blocks
// (Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks", 2018): that input is the largest tensor of such a
// block. It is computed a few channels or rows at a time, by the thread that reads it, and never leaves that core's caches.
#pragma once

#include <memory>

#include "jit/isa.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Two convolutions in the region of a `fused` node, the second one of which reads the first.
bool is_expanded(const tessera::sdk::Node& fused);
// Null: this backend computes the region, of which is_expanded holds; else the reason why not.
const char* refuse_expanded(const tessera::sdk::Node& fused, const Isa& isa);
std::unique_ptr<tessera::sdk::Kernel> make_expanded(const tessera::sdk::Compile& c, const Isa& isa);

}  // namespace cpu
