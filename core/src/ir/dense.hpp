// SPDX-License-Identifier: Apache-2.0
// Constants in text: dense<f32[2]: [1.0, 2.0]>. Reading is Reader::dense().
#pragma once

#include <cstdint>
#include <string>

#include "tessera/abi.h"

namespace tessera::core {

// Element by element up to 64 of them, beyond as hex; PrintFlags as in printer.hpp.
void append_dense(std::string& out, const tsr_tensor& constant, uint32_t flags);

// Dtype, shape and bytes; the unused bits of a packed tensor's last byte do not count.
bool same_constant(const tsr_tensor& a, const tsr_tensor& b);

}  // namespace tessera::core
