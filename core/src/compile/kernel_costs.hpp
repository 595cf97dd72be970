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
  double seconds = -1;  // lower quartile of the runs, the least of those of several processes; negative: it cannot be run alone
  int64_t workspace_bytes = 0;
  int32_t in_place = -1;  // tsr_kernel.in_place
};

// What makes two kernels one: op, attributes, regions, types and views of the operands, and the sizes at the hints of symbols.
// Names and places in the program do not count. `is_view`: by node, of the views of the plan.
std::string kernel_key(const Graph& graph, tsr_id node, const std::vector<uint8_t>& is_view, const std::vector<int64_t>& hints);

// By step of a plan; nested plans have lists of their own. Nothing where the step is no kernel, or runs on a backend that does
// not compute. What is not known yet is compiled and run, several kernels at once, one behind the other as a program has them.
std::vector<std::optional<KernelCost>> kernel_costs(Graph& graph, const Plan& plan, const CompileOptions& options);

}  // namespace tessera::core
