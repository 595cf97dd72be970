// SPDX-License-Identifier: Apache-2.0
// What a graph will cost, without code generation.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph_services.hpp"

namespace tessera::core {

class Graph;
class Plan;
struct CompileOptions;

// The sum over the steps of a plan. Symbols take their hint, else the smallest value of their range (at least 2). Before code
// generation workspaces are known of kernels that have been measured, and count as 0 for others. The model: docs/runtime.md.
// `measured`: as for step_costs().
Estimate estimate_plan(Graph& graph, Plan& plan, const CompileOptions* measured = nullptr);
// What estimate_plan() says of the peak, workspaces included where the plan has its kernels.
int64_t peak_bytes(Graph& graph, Plan& plan);
int64_t peak_bytes_of_finished(const Graph& graph, const Plan& plan);
// The same where symbols have these values, in table order, instead of their hints.
int64_t peak_bytes_at(const Graph& graph, const Plan& plan, const std::vector<int64_t>& values);
// Of moving a byte to or from a device's memory, by its description where it has one.
double seconds_per_byte(tsr_device device);

struct StepCost {
  double seconds = 0;
  int64_t workspace_bytes = 0;
  int32_t in_place = -1;
  uint64_t strided = 0, unaligned = 0;  // as tsr_kernel says
  bool guessed = false;                 // it could not be measured, and neither the op nor its backend says what it takes
};
// By step of the plan; nested plans have their own. What has been measured, where `measured` asks for that
// (CompileOptions::measure_costs), else a prediction. `hints`: of the graph's symbols (hint_values).
std::vector<StepCost> step_costs(Graph& graph, const Plan& plan, const std::vector<int64_t>& hints,
                                 const CompileOptions* measured);

}  // namespace tessera::core
