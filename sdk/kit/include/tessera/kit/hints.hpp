// SPDX-License-Identifier: Apache-2.0
// Sizes of tensors as far as they are known when a graph is compiled: symbols at their hints. For decisions, never for code.
#pragma once

#include "tessera/plugin.hpp"

namespace tessera::kit {

// `unknown`: a symbol without a hint, as far as its range has it. Negative sizes count as 0.
double elements_at_hints(const sdk::Graph& g, sdk::Type t, int64_t unknown = 2);
double bytes_at_hints(const sdk::Graph& g, sdk::Type t, int64_t unknown = 2);

}  // namespace tessera::kit
