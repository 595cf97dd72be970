// SPDX-License-Identifier: Apache-2.0
#include "compile/driver.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "autograd/expand.hpp"
#include "compile/assign.hpp"
#include "compile/budget.hpp"
#include "compile/estimate.hpp"
#include "compile/late_passes.hpp"
#include "compile/leave_to_others.hpp"
#include "compile/order.hpp"
#include "compile/pair.hpp"
#include "compile/partition.hpp"
#include "compile/place.hpp"
#include "compile/services.hpp"
#include "compile/show.hpp"
#include "ir/graph.hpp"
#include "log/log.hpp"
#include "plan/plan.hpp"
#include "plan/plan_kernels.hpp"
#include "plan/saved_kernels.hpp"
#include "run/executable.hpp"
#include "support/clock.hpp"
#include "support/error.hpp"
#include "support/text.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

constexpr std::array<const char*, 13> kNames = {"call passes", "passes",    "autograd",  "joint passes", "place",
                                                "assign",      "decompose", "partition", "fuse",         "order",
                                                "plan",        "kernels",   "executable"};

// Runs the stages up to `last`, each between its hooks, timed and named.
class Stages {
 public:
  Stages(Compilation& c, std::span<StageHook* const> hooks, Stage last) : c_(c), hooks_(hooks), last_(last) {}

  template <class F>
  void operator()(Stage stage, F&& run) {
    if (stage > last_) return;
    bool missing = true;
    for (StageHook* h : hooks_) missing = h->before(stage, c_) && missing;
    if (!missing) return say(stage, "is there already");
    const auto start = std::chrono::steady_clock::now();
    {
      const TracePhase phase(stage_name(stage));
      run();
    }
    const double seconds = seconds_since(start);
    seconds_[static_cast<size_t>(stage)] = seconds;
    if (log_enabled(Artifact::kStages)) {
      char text[32];
      std::snprintf(text, sizeof text, "%.3f ms", seconds * 1e3);
      say(stage, text);
    }
    for (StageHook* h : hooks_) h->after(stage, c_);
  }

  double seconds(Stage from, Stage to) const {
    double sum = 0;
    for (auto s = static_cast<size_t>(from); s <= static_cast<size_t>(to); ++s) sum += seconds_[s];
    return sum;
  }

 private:
  void say(Stage stage, const char* what) const {
    if (!log_enabled(Artifact::kStages)) return;
    const Graph& g = c_.executable ? c_.executable->graph() : *c_.graph;
    std::string name = stage_name(stage);
    name.resize(13, ' ');
    log_write(Artifact::kStages, "@" + std::string(g.tables().name) + "  " + name + what);
  }

  Compilation& c_;
  std::span<StageHook* const> hooks_;
  Stage last_;
  std::array<double, kNames.size()> seconds_{};
};

// The stages of every compile and of every estimate.
void run_stages(Compilation& c, const PassLists& passes, std::span<StageHook* const> hooks, Stage last) {
  const ServiceScope services(c.options);
  if (c.graph->in_transaction()) c.graph->commit();
  Stages stage(c, hooks, last);
  if (!passes.call.empty()) stage(Stage::kCallPasses, [&] { run_passes(*c.graph, passes.call, passes.options); });
  stage(Stage::kPasses, [&] {
    if (!passes.graph.empty()) run_passes(*c.graph, passes.graph, passes.options);
  });
  if (has_gradients(*c.graph)) {
    stage(Stage::kAutograd, [&] { expand_gradients(*c.graph); });
    stage(Stage::kJointPasses, [&] {
      if (!passes.joint.empty()) run_passes(*c.graph, passes.joint, passes.options);
    });
  }
  stage(Stage::kPlace, [&] { place_on_devices(*c.graph, c.options.device); });
  stage(Stage::kAssign, [&] { c.assignment = assign_backends(*c.graph, c.options); });
  if (any_refused(c.assignment)) stage(Stage::kDecompose, [&] { decompose_refused(*c.graph, c.assignment, c.options); });
  Budget budget(c, last);
  do {
    // Before fusion: a group must not straddle the cut.
    if (is_partitioned(*c.graph, c.options))
      stage(Stage::kPartition, [&] {
        const CompileOptions options = c.options;
        if (partition(*c.graph, c.assignment, options, budget.workspaces(), budget.evaluated(), budget.plan()))
          c.assignment = assign_again(*c.graph, c.options);
      });
    if (c.options.late_passes)
      stage(Stage::kFuse, [&] {
        CompileOptions without = c.options;  // for the estimates that fusion asks for
        without.late_passes = nullptr;
        const ServiceScope inner(without);
        if (run_late_passes(*c.graph, *c.options.late_passes)) c.assignment = assign_again(*c.graph, c.options);
      });
    stage(Stage::kOrder, [&] { order_transfers(*c.graph); });
    for (bool again = true; std::exchange(again, false);) {
      stage(Stage::kPlan, [&] { c.plan = build_plan(*c.graph, c.assignment, c.options); });
      try {
        stage(Stage::kKernels, [&] { compile_kernels(*c.graph, *c.plan, c.options); });
      } catch (const KernelError& e) {
        c.plan.reset();
        if (!leave_to_others(*c.graph, c.assignment, c.options, e)) throw;
        again = true;
      }
    }
  } while (budget.is_exceeded());
  stage(Stage::kExecutable, [&] { c.executable = Executable::make(std::move(c.graph), std::move(c.plan), c.options); });
  if (!c.executable) return;
  c.executable->times.passes = stage.seconds(Stage::kCallPasses, Stage::kJointPasses);
  c.executable->times.assign = stage.seconds(Stage::kPlace, Stage::kOrder);
  c.executable->times.kernels = stage.seconds(Stage::kPlan, Stage::kExecutable);
}

}  // namespace

const char* stage_name(Stage stage) { return kNames[static_cast<size_t>(stage)]; }

std::unique_ptr<Executable> compile_graph(std::unique_ptr<Graph> graph, const PassLists& passes, const CompileOptions& options,
                                          std::span<StageHook* const> given) {
  ShowHook show;
  std::vector<StageHook*> hooks(given.begin(), given.end());
  hooks.push_back(&show);
  if (is_pair(*graph)) return compile_pair(std::move(graph), passes, options);
  Compilation c{std::move(graph), options, {}, {}, {}};
  run_stages(c, passes, hooks, Stage::kExecutable);
  return std::move(c.executable);
}

void run_joint_stages(Compilation& c, const PassLists& passes) { run_stages(c, passes, {}, Stage::kPartition); }

std::unique_ptr<Executable> compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options) {
  return compile_graph(std::move(graph), {}, options);
}

std::vector<PartitionPlan> partition_plans(std::unique_ptr<Graph> graph, const PassLists& passes,
                                           const CompileOptions& options) {
  const std::string name = graph->tables().name;
  if (!options.partition)
    throw user_error("TSR-A014", "no plans of memory for graph @" + name + ": 'partitioner.name' names no partitioner",
                     "set partitioner.name to \"budget\"");
  const ServiceScope services(options);
  Compilation c{std::move(graph), options, {}, {}, {}};
  run_stages(c, passes, {}, Stage::kDecompose);
  if (!is_partitioned(*c.graph, options))
    throw user_error("TSR-A014", "no plans of memory for graph @" + name + ": it has no backward half",
                     "ask for gradients: op 'grad'");
  std::vector<PartitionPlan> plans;
  partition_front(*c.graph, c.assignment, options, [&](const PartitionPlan& p) { plans.push_back(p); });
  return plans;
}

Compilation lower(std::unique_ptr<Graph> graph, CompileOptions options, Stage last) {
  options.partition = nullptr;
  options.arena_max_bytes = 0;
  Compilation c{std::move(graph), std::move(options), {}, {}, {}};
  run_stages(c, {}, {}, last);
  return c;
}

Estimate price(Compilation& c) { return estimate_plan(*c.graph, *c.plan, &c.options); }

Estimate estimate(const Graph& graph) {
  CompileOptions options = service_options();
  options.partition = nullptr;
  Compilation c{graph.clone(), std::move(options), {}, {}, {}};
  run_stages(c, {}, {}, Stage::kPlan);
  return estimate_plan(*c.graph, *c.plan);
}

}  // namespace tessera::core
