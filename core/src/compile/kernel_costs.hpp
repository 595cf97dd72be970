// SPDX-License-Identifier: Apache-2.0
// What kernels take, measured on the device that they run on. Each distinct one is timed once: times are kept by this process
// and, where the compile has a cache, on disk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan.hpp"

namespace tessera::core {

class Graph;
struct CompileOptions;

struct KernelCost {
  double seconds = -1;  // of the fastest run, of all processes that measured it; negative: it cannot be run alone
  int64_t workspace_bytes = 0;
  int32_t in_place = -1;  // as tsr_kernel says, and so the next
  uint64_t strided = 0, unaligned = 0;
};

// By step of a plan; nested plans have lists of their own. Nothing where the step is no kernel, or runs on a backend that does
// not compute. What is not known yet is compiled and run, several kernels at once, one behind the other in the order of
// the program, and what the step before has touched there is in a cache here as well.
std::vector<std::optional<KernelCost>> kernel_costs(Graph& graph, const Plan& plan, const CompileOptions& options);

}  // namespace tessera::core
