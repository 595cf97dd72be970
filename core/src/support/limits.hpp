// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tessera::core {

// Far beyond any real program; it bounds recursion and fixed-size arrays.
inline constexpr uint32_t kMaxRank = 64;

}  // namespace tessera::core
