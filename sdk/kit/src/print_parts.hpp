// SPDX-License-Identifier: Apache-2.0
// What the text forms of kernels and of programs share.
#pragma once

#include <string>

#include "tessera/kit/ir.hpp"

namespace tessera::kit {

std::string constant_text(Type t, uint64_t bits);
std::string pure_text(uint32_t id, const Inst& x);  // "%3 = add %1, %2 : f32"; of an instruction without memory access

}  // namespace tessera::kit
