// SPDX-License-Identifier: Apache-2.0
// max_pool of f32 whose indices nobody reads, over one or two dimensions.
#pragma once

#include <memory>

#include "jit/isa.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Null: this backend takes the node; else the reason why not.
const char* refuse_max_pool(const tessera::sdk::Node& node);
std::unique_ptr<tessera::sdk::Kernel> make_max_pool(const tessera::sdk::Compile& c, const Isa& isa);

}  // namespace cpu
