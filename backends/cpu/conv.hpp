// SPDX-License-Identifier: Apache-2.0
// Convolution as a product without its matrix: rows are output channels, columns output positions, and the panels of input
// values that micro-kernels read are gathered right before they are used (implicit GEMM). Weights that are constants are packed
// once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "gemm/gemm.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Null: this backend takes the node; else the reason why not.
const char* refuse_conv(const tessera::sdk::Node& node);

// How it is computed: see docs/cpu_backend.md. The sizes say which way is predicted to be the fastest.
enum class ConvWay : uint8_t { kPredicted, kColumns, kRows, kPlanes, kWinograd2, kWinograd4 };
const char* to_text(ConvWay way);  // "columns", "winograd4"
// The ways that compute this node, maybe none that could be told apart (sizes that are symbols, groups, weights that are no
// constant).
std::vector<ConvWay> conv_ways(const tessera::sdk::Compile& c, const Isa& isa, int most_winograd);

// `most_winograd`: the largest size of blocks of minimal filtering (winograd/winograd.hpp), 0 for none. `way`: one of
// conv_ways().
std::unique_ptr<tessera::sdk::Kernel> make_conv(const tessera::sdk::Compile& c, const Isa& isa, int most_winograd,
                                                ConvWay way = ConvWay::kPredicted);

}  // namespace cpu
