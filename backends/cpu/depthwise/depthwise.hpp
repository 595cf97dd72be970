// SPDX-License-Identifier: Apache-2.0
// Convolutions whose groups have one input channel each (depthwise): no product has rows enough for them. Every plane is copied
// once with its padding, columns apart by their remainder modulo the stride, so that all a tap reads is contiguous.
#pragma once

#include <memory>

#include "conv_shape.hpp"
#include "depthwise/tables.hpp"
#include "jit/isa.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Whether there is a kernel that reads planes where they lie (DepthwiseDirect) for such a filter: those that models are made
// of.
bool is_direct(const Isa& isa, const ConvAttributes& a, int64_t rows, int64_t columns);
DepthwiseDirect* direct_kernel(const Isa& isa);

// Null: a convolution for make_depthwise; else the reason why not.
const char* refuse_depthwise(const tessera::sdk::Node& node);
// `conv` is the compiled node, or lies in its region.
std::unique_ptr<tessera::sdk::Kernel> make_depthwise(const tessera::sdk::Compile& c, const Isa& isa,
                                                     const tessera::sdk::Node& conv);

}  // namespace cpu
