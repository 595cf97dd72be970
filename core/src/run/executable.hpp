// SPDX-License-Identifier: Apache-2.0
// A compiled graph: the final graph, its plan and the kernels.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "plan/compile_options.hpp"
#include "plan/plan.hpp"
#include "run/fast_call.hpp"

namespace tessera::core {

class DebugFolder;
class Graph;
class PlanRunner;
struct BackwardHalf;

// Immutable and reentrant: run() may be called from any number of threads at once; each call takes an arena of its own.
class Executable {
 public:
  // The last stage of the driver: gives the plan its places in memory, and decides how a call runs. Throws TSR-R023 (a size
  // that nothing determines), TSR-R025 (a larger arena than is allowed), and what an executor reports.
  static std::unique_ptr<Executable> make(std::unique_ptr<Graph> graph, std::unique_ptr<Plan> plan,
                                          const CompileOptions& options);
  ~Executable();

  // inputs: one per graph input, in order. outputs: new references, one per graph output. States with a writeback are updated
  // in place. Throws TSR-T020 to TSR-T027 for wrong inputs; then no state has changed. After an error from a kernel, states are
  // unchanged unless they are donated.
  // guarded: inputs that the graph does not read are not looked at. What kernels on a device find wrong with their data is
  // thrown by the next call on that stream, synchronisation or copy to the host.
  void run(std::span<tsr_tensor_handle* const> inputs, std::span<tsr_tensor_handle*> outputs, bool guarded = false,
           const RunContext* context = nullptr) const;
  // Inputs that the graph calls donated arguments are let go of as soon as the last step that reads them is queued. The others
  // stay.
  void run_handing_over(std::span<TensorRef> inputs, std::span<tsr_tensor_handle*> outputs) const;
  // On plain tensors, into memory that the caller gives. The same checks.
  void run_raw(const tsr_raw_call& call) const;
  // The same without the checks: for callers whose guards imply them.
  void run_trusted(tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const;

  const Graph& graph() const { return *graph_; }
  const Plan& plan() const { return *plan_; }
  // The steady call, for inputs that are dense (or as their types say) and aligned where that matters. Null: the plan has none.
  const FastCall* fast_call() const { return fast_call_.get(); }
  size_t num_inputs() const { return plan_->inputs.size(); }
  size_t num_outputs() const { return plan_->output_slots.size(); }

  struct Times {  // seconds
    double passes = 0, assign = 0, kernels = 0;
    double total() const { return passes + assign + kernels; }
  } times;
  // Of the forward half of a pair (saved_values.hpp); null: the program is one. Set before the executable is shared.
  std::unique_ptr<BackwardHalf> backward;
  std::string plan_text() const;  // the step table and the memory, for people: `tessera run --memory`, log artifact "plan"
  // Under the log artifacts plan, output_code, compute_dependencies and perf_hints, and for a debug folder (may be null).
  void log_plan(DebugFolder* debug) const;
  std::string diagram() const;        // the final graph and where it runs, in DOT
  std::string describe_json() const;  // schema: docs/json.md, "executable"

 private:
  Executable();
  void check_count(size_t found, size_t expected, bool inputs) const;  // throws TSR-T020
  std::shared_ptr<const void> keep_;                                   // outlives the rest: destroyed last
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<PlanRunner> runner_;  // of the plan
  FastCall::Owner fast_call_;           // of the plan
};

}  // namespace tessera::core
