// SPDX-License-Identifier: Apache-2.0
// Convolutions whose groups have one input channel each (depthwise): no product has rows enough for them. Every plane is copied once with its
// padding, columns apart by their remainder modulo the stride, so that all a tap reads is contiguous.
#pragma once

#include <memory>

#include "jit/isa.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Null: a convolution for make_depthwise; else the reason why not.
const char* refuse_depthwise(const tessera::sdk::Node& node);
// `conv` is the compiled node, or lies in its region.
std::unique_ptr<tessera::sdk::Kernel> make_depthwise(const tessera::sdk::Compile& c, const Isa& isa,
                                                     const tessera::sdk::Node& conv);

}  // namespace cpu
