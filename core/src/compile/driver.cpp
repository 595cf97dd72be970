// SPDX-License-Identifier: Apache-2.0
#include "compile/driver.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "autograd/expand.hpp"
#include "compile/assign.hpp"
#include "compile/estimate.hpp"
#include "compile/executable.hpp"
#include "compile/late_passes.hpp"
#include "compile/order.hpp"
#include "compile/place.hpp"
#include "compile/plan.hpp"
#include "compile/plan_kernels.hpp"
#include "compile/services.hpp"
#include "compile/show.hpp"
#include "ir/graph.hpp"
#include "log/log.hpp"
#include "support/clock.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

constexpr std::array<const char*, 11> kNames = {"call passes", "passes", "autograd", "joint passes", "place",     "assign",
                                                "fuse",        "order",  "plan",     "kernels",      "executable"};

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

// Leaves to other backends what one has failed to compile, with a warning. It is all that the backend would be asked for when
// the fault lies with the machine, or when it fails again and again. False: nobody else takes it.
bool leave_to_others(Compilation& c, const KernelError& e) {
  constexpr ptrdiff_t kMostNodes = 8;
  auto& failed = c.options.failed;
  if (c.options.strict_backends || c.options.restore || e.backend == c.options.backends.back()) return false;
  const bool again =
      std::count_if(failed.begin(), failed.end(), [&](const auto& f) { return f.first == e.backend; }) >= kMostNodes;
  const bool all = e.node == TSR_NONE || e.family() == TSR_ENVIRONMENT || again;
  failed.insert({e.backend, all ? TSR_NONE : e.node});
  try {
    c.assignment = assign_backends(*c.graph, c.options);
  } catch (const Error& nobody) {
    if (!is_unassignable(nobody)) throw;
    return false;
  }
  log_warning("[" + e.code() + "] " + e.message() + "; " +
              (all ? "graph '" + std::string(c.graph->tables().name) + "' runs" : std::string("it runs")) +
              " on other backends" + (e.hint().empty() ? "" : " (" + e.hint() + ")"));
  return true;
}

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
  // A joint graph is partitioned here, before fusion: a group must not straddle the cut.
  if (c.options.late_passes)
    stage(Stage::kFuse, [&] {
      CompileOptions without = c.options;  // for the estimates that fusion asks for
      without.late_passes = nullptr;
      const ServiceScope inner(without);
      if (run_late_passes(*c.graph, *c.options.late_passes)) c.assignment = assign_backends(*c.graph, c.options);
    });
  stage(Stage::kOrder, [&] { order_transfers(*c.graph); });
  for (bool again = true; std::exchange(again, false);) {
    stage(Stage::kPlan, [&] { c.plan = build_plan(*c.graph, c.assignment, c.options); });
    try {
      stage(Stage::kKernels, [&] { compile_kernels(*c.graph, *c.plan, c.options); });
    } catch (const KernelError& e) {
      c.plan.reset();
      if (!leave_to_others(c, e)) throw;
      again = true;
    }
  }
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
  Compilation c{std::move(graph), options, {}, {}, {}};
  run_stages(c, passes, hooks, Stage::kExecutable);
  return std::move(c.executable);
}

std::unique_ptr<Executable> compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options) {
  return compile_graph(std::move(graph), {}, options);
}

Estimate estimate(const Graph& graph) {
  Compilation c{graph.clone(), service_options(), {}, {}, {}};
  run_stages(c, {}, {}, Stage::kPlan);
  return estimate_plan(*c.graph, *c.plan);
}

}  // namespace tessera::core
