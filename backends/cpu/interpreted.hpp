// SPDX-License-Identifier: Apache-2.0
// Small elementwise kernels that are interpreted, for graphs whose compiling would not pay. A chain of such ops is one kernel
// that walks over a list of steps, and takes microseconds to make. Every op here is exact by IEEE 754, so its bits are those of
// generated code.
#pragma once

#include <memory>

#include "tessera/plugin.hpp"

namespace cpu {

// Whether a node, or a `fused` one with its region, can be interpreted: static sizes of few elements, one float type, and the
// ops that are listed. Null: it can; else why not.
const char* refuse_interpreted(const tessera::sdk::Graph& g, const tessera::sdk::Node& n);
// Whether a `fused` node has such ops alone, whatever their sizes.
bool of_interpreted_ops(const tessera::sdk::Graph& g, const tessera::sdk::Node& fused);
std::unique_ptr<tessera::sdk::Kernel> make_interpreted(const tessera::sdk::Compile& c);

}  // namespace cpu
