// SPDX-License-Identifier: Apache-2.0
// The part of building a plan that talks to backends: their kernels for its steps, and where the constants that these read lie.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera::core {

class Graph;
class Plan;
struct CompileOptions;

// Compiles the kernel of every step that has a backend, or takes it from the cache (options.restore). Each backend hears of all
// its kernels (prepare) before it is asked for the first. Adds to the plan's pack_seconds and byte counts. Throws what backends
// report, with the node's place.
void compile_kernels(Graph& g, Plan& plan, const CompileOptions& options);

struct UnplacedConstant {
  size_t constant;   // of Plan::constants; its data is not set yet
  const void* data;  // in the graph's memory, which outlives the plan
  size_t bytes;
};

// Copies constants that lie on another device, or not on 64 bytes, once it is known who reads them: what kernels have in a form of
// their own stays where it is, and so does what is large and read by kernels that do not care.
void place_constants(Plan& plan, const std::vector<UnplacedConstant>& unplaced);

}  // namespace tessera::core
