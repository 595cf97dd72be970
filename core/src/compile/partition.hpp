// SPDX-License-Identifier: Apache-2.0
// The partition stage: a partitioner decides which values of the forward half of a joint graph are kept for its backward half,
// and which are computed again there; the core lowers every plan that it is asked about, so that a peak is that of the final
// arena.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "compile/assign.hpp"
#include "config/options.hpp"
#include "ir/graph_services.hpp"

namespace tessera::core {

class Graph;
struct CompileOptions;
struct Factory;
enum class Stage : uint8_t;

struct PartitionOptions {  // of a config
  const Factory* partitioner = nullptr;
  OptionSet options;    // of its plugin
  double fraction = 1;  // partitioner.budget
  int64_t bytes = -1;   // partitioner.budget_bytes
  std::string place;    // where the budget comes from, for messages
  // The programs that a plan makes of a joint graph, which run one after the other, and what the options lack to lower them.
  // Called by several threads at once. Empty: it is one program.
  std::function<std::vector<std::unique_ptr<Graph>>(std::unique_ptr<Graph>, CompileOptions&)> split = {};
};

// What a partitioner chose, as one line and for tools. Bytes are those at the hints of symbols.
struct PartitionPlan {
  std::string partitioner;
  int64_t saved_bytes = 0, peak_bytes = -1;  // peak -1: not asked
  int64_t budget_bytes = -1;                 // for the peak; -1: none
  bool feasible = true;                      // false: no plan keeps to the budget, and this is the one with the smallest peak
  double recompute_seconds = 0, step_seconds = 0;
  double unfused_seconds = 0;           // of what runs again, node by node
  double predicted_seconds = -1;        // of a step under this plan, fused; negative: nobody asked
  double gap = -1;                      // of unfused_seconds to a bound, as a part of the step's time; negative: unknown
  std::vector<std::string> saved;       // names of the values that are kept, in the order of their ids
  std::vector<std::string> recomputed;  // names of the results of what runs again, in program order
  std::string line() const;
};

// What lowering has found of plans of one joint graph, by what they compute again: one flag per node, in program order.
using EvaluatedPlans = std::unordered_map<std::string, Estimate>;

// Whether the graph has both halves, and a partitioner or the program (TSR_MARK_CHECKPOINT) decides what is kept for it.
bool is_partitioned(const Graph& graph, const CompileOptions& options);

// Chooses a plan for an assigned joint graph and puts it into effect: copies of the nodes that run again stand before their
// first reader of the backward half, marked TSR_MARK_RECOMPUTED, and originals that nobody reads any more are gone. True: the
// graph changed and has to be assigned again. `workspaces`: bytes at the peak that a plan without kernels does not know of.
// `evaluated`: of this graph, or of copies of it; what is missing is added. `plan` tells what was chosen. Throws TSR-A011 (a
// partitioner decided what it may not), and what the partitioner throws.
bool partition(Graph& graph, const std::vector<Assignment>& assignment, const CompileOptions& options, int64_t workspaces,
               EvaluatedPlans& evaluated, PartitionPlan& plan);

// Calls `each` for every plan that the partitioner chooses from, by ascending recompute time; with a budget, for the one that
// it chooses. Each is compiled, so that its peak is that of its program, workspaces of kernels included. Of the graph, only
// marks change.
void partition_front(Graph& graph, const std::vector<Assignment>& assignment, const CompileOptions& options,
                     const std::function<void(const PartitionPlan&)>& each);

}  // namespace tessera::core
