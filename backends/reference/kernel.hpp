// SPDX-License-Identifier: Apache-2.0
// One kernel per op of the standard set, on memory of the host: floats in f64, complex in c128, integers exactly, plain loops,
// one rounding per op.
#pragma once

#include <memory>

#include "tessera/plugin.hpp"

namespace tessera::reference {

sdk::Claim claim(sdk::Graph g, sdk::Node n);
std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c);

}  // namespace tessera::reference
