// SPDX-License-Identifier: Apache-2.0
// attention of f32 as two products on the micro-kernels of gemm, with a softmax between them that keeps the scores of a panel of queries in the caches.
#pragma once

#include <memory>

#include "jit/isa.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Null: this backend takes the node. Few queries are left to the next backend: lanes hold queries here.
const char* refuse_attention(const tessera::sdk::Node& n);
std::unique_ptr<tessera::sdk::Kernel> make_attention(const tessera::sdk::Compile& c, const Isa& isa);

}  // namespace cpu
