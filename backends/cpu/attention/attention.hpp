// SPDX-License-Identifier: Apache-2.0
// attention of f32 as two products on the micro-kernels of gemm, with a softmax between them that keeps the scores of a panel
// of queries in the caches.
#pragma once

#include <memory>

#include "jit/compiler.hpp"
#include "tessera/kit/schedule.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

constexpr int64_t kFewQueries = 8;  // lanes hold queries here: fewer are left to the next backend

// Of `attention`, `attention_lse` and `attention_backward`.
bool is_attention(const tessera::sdk::Node& n);
// Null: this backend takes the node.
const char* refuse_attention(const tessera::sdk::Node& n);
std::unique_ptr<tessera::sdk::Kernel> make_attention(const tessera::sdk::Compile& c, const Isa& isa);
// backward.cpp
std::unique_ptr<tessera::sdk::Kernel> make_attention_backward(const tessera::sdk::Compile& c, const Isa& isa);

// A group as form.hpp says. Empty: this backend takes it; `generates`: it may compile code.
std::string refuse_attention_group(const tessera::sdk::Node& n, bool generates);
// The code that compile() will want; false: none.
bool prepare_attention_group(const tessera::sdk::Compile& c, const tessera::kit::Device& device, Source* out);
std::unique_ptr<tessera::sdk::Kernel> make_attention_group(const tessera::sdk::Compile& c, const Isa& isa,
                                                           const tessera::kit::Device& device, Compiler& compiler);

}  // namespace cpu
