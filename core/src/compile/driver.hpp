// SPDX-License-Identifier: Apache-2.0
// From a graph to an executable. driver.cpp is the list of stages in their order; what wraps stages (a cache, traces, files for
// people) is a StageHook.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compile/assign.hpp"
#include "context/context.hpp"
#include "ir/graph_services.hpp"
#include "pass/pass_manager.hpp"
#include "plan/compile_options.hpp"

namespace tessera::core {

class Executable;
class Graph;
class Plan;
struct PartitionPlan;

enum class Stage : uint8_t {
  kCallPasses,   // the config's passes that may go by the sizes of the call at hand
  kPasses,       // the config's other passes
  kAutograd,     // gradients become nodes
  kJointPasses,  // the config's passes for a graph with gradients
  kPlace,        // every value gets its device
  kAssign,       // every node gets a backend
  kDecompose,    // what all backends refuse is decomposed and assigned again, where there is any
  kPartition,    // of a joint graph: what is kept for the backward half, and what is computed again
  kFuse,         // passes that need to know the backends; what they made is assigned
  kOrder,        // where transfers stand among the other nodes
  kPlan,         // the step table
  kKernels,      // what backends compile
  kExecutable,   // places in memory, and how a call runs
};
const char* stage_name(Stage stage);  // "passes"

// What one stage leaves to the next.
struct Compilation {
  std::unique_ptr<Graph> graph;  // the executable takes it
  CompileOptions options;
  std::vector<Assignment> assignment;      // by node id, from kAssign on
  std::unique_ptr<Plan> plan;              // from kPlan on; the executable takes it
  std::unique_ptr<Executable> executable;  // from kExecutable on
  int64_t budget_bytes = -1;               // that the partition kept to, from kPartition on; -1: none
};

class StageHook {
 public:
  virtual ~StageHook() = default;
  // Before a stage. False: what the stage would make is there already, and it does not run.
  virtual bool before(Stage, Compilation&) { return true; }
  // After a stage that ran.
  virtual void after(Stage, Compilation&) {}
};

// The config's passes by stage. Those of TSR_STAGE_ASSIGNED are among the options of a compile.
struct PassLists {
  std::vector<BoundPass> call, graph, joint;
  PassOptions options;
};

// What a backend fails to compile is left to the others, with a warning that names it. Throws what passes and executors report,
// and the last backend; TSR-R020 (no backend takes a node), TSR-R023 (a size that nothing determines), TSR-R025 (a larger arena
// than runtime.arena_max_bytes), TSR-I038 (tensors of one node on two devices).
std::unique_ptr<Executable> compile_graph(std::unique_ptr<Graph> graph, const PassLists& passes, const CompileOptions& options,
                                          std::span<StageHook* const> hooks = {});
// The stages up to the partition, of a joint graph that is split behind it.
void run_joint_stages(Compilation& compilation, const PassLists& passes);
// The plans that the options' partitioner chooses from; with a budget, the one that it chooses. Throws TSR-A014 for a graph
// without a backward half, or without a partitioner.
std::vector<PartitionPlan> partition_plans(std::unique_ptr<Graph> graph, const PassLists& passes,
                                           const CompileOptions& options);
// The stages up to the plan, or to the kernels (whose workspaces count then), on this graph, for which everything has been
// decided: no passes of the graph's own, no partition.
Estimate estimate(std::unique_ptr<Graph> graph, CompileOptions options, Stage last = Stage::kPlan);
// Its halves: several graphs may be lowered at the same time, and priced one after the other.
Compilation lower(std::unique_ptr<Graph> graph, CompileOptions options, Stage last = Stage::kPlan);
Estimate price(Compilation& lowered);
// Of a graph that has been through its passes.
std::unique_ptr<Executable> compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options);

}  // namespace tessera::core
