// SPDX-License-Identifier: Apache-2.0
// Runs a plan, and keeps what its calls share.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "memory/stream.hpp"
#include "memory/tensor.hpp"
#include "plan/layout.hpp"
#include "plan/plan.hpp"

namespace tessera::core {

struct RunState;

// All functions may be called from many threads at once. The plan outlives its runner.
class PlanRunner {
 public:
  explicit PlanRunner(const Plan& plan);
  // Waits for what the runs have queued on devices.
  ~PlanRunner();
  PlanRunner(const PlanRunner&) = delete;

  const Plan& plan() const { return plan_; }
  // Outputs are new references. Throws TSR-T02x for wrong inputs, and what kernels report.
  void run(const CallArgs& args, TensorRef* outputs) const;
  // Writes result j, dense, to args.places[j], which is aligned to kAlignment and overlaps no input. The plan runs on the host
  // alone.
  void run_into(const CallArgs& args) const;
  // Writes result j, dense, to memory that args.raw gives for it.
  void run_raw(const CallArgs& args) const;
  // Of the regions of a control step of this plan.
  const PlanRunner& region(uint32_t step, size_t index) const { return *regions_[step][index]; }

 private:
  RunState* acquire() const;
  void release(RunState*) const noexcept;
  // finish(state, j, slot, its place) for every output j, before the state is given back.
  template <class Finish>
  void run_with_state(const CallArgs& args, Finish&& finish) const;
  void begin_streams(RunState& state, const CallArgs& args) const;
  void end_streams(RunState& state, const CallArgs& args) const noexcept;
  Buffer* allocate(const RunState& state, tsr_device d, int64_t bytes) const;
  void take_output(RunState& state, const CallArgs& args, const SectionLayout& layout,
                   const SectionLayout::Output& output) const;
  void let_go(const RunState& state, TensorRef& handed_over) const;
  void run_sections(RunState& state, const CallArgs& args) const;
  bool run_executor(RunState& state, const SectionLayout& layout) const;
  void take_arenas(RunState& state, const SectionLayout& layout, bool of_executor) const;
  const std::shared_ptr<const SectionLayout>& layout_for(RunState& state, uint32_t section, bool irregular) const;
  std::shared_ptr<const SectionLayout> layout_for_executor(const RunState& state) const;
  bool describe_inputs(RunState& state, const CallArgs& args) const;

  const Plan& plan_;
  std::vector<std::vector<std::unique_ptr<PlanRunner>>> regions_;  // by step

  // What its runs have queued: kernels stay until that has passed.
  mutable std::mutex used_mutex_;
  mutable std::vector<StreamPoint> used_;

  static constexpr size_t kIdleStates = 16;
  mutable std::atomic<RunState*> idle_states_[kIdleStates] = {};
  mutable std::mutex layouts_mutex_;
  struct KeptLayout {
    std::shared_ptr<const SectionLayout> layout;
    uint64_t used = 0;  // when it was last looked up, by layout_lookups_
  };
  static constexpr size_t kKeptLayouts = 64;
  mutable std::map<std::vector<int64_t>, KeptLayout> layouts_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const ExecutorLayout>>
      shared_executors_;  // by what such layouts are alike in
  mutable uint64_t layout_lookups_ = 0;
};

}  // namespace tessera::core
