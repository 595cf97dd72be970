// SPDX-License-Identifier: Apache-2.0
// The layouts of a plan that its calls share: one per combination of sizes, strides, alignments and states given away.
#include <algorithm>
#include <numeric>

#include "memory/device.hpp"
#include "plan/executor_layout.hpp"
#include "run/plan_runner.hpp"
#include "run/run_state.hpp"
#include "support/error.hpp"

namespace tessera::core {

// What the inputs of this call look like. False when every one is as the primary layout expects it.
bool PlanRunner::describe_inputs(RunState& state, const CallArgs& args) const {
  bool irregular = false;
  for (uint32_t i = 0; i < plan_.inputs.size(); ++i) {
    const tsr_tensor& t = *args.inputs[i];
    InputLayout& in = state.inputs[i];
    in = {};
    if (!plan_.inputs[i].strides.empty()) {
      in.strides = plan_.inputs[i].strides.data();
    } else if (!(t.flags & TSR_TENSOR_CONTIGUOUS) && !is_dense(t.rank, t.sizes, t.strides)) {
      in.strides = t.strides;
      irregular = true;
    }
    if (plan_.needs_alignment && reinterpret_cast<uintptr_t>(t.data) % kAlignment != 0) {
      in.aligned = false;
      irregular = true;
    }
    if (plan_.gives_away && plan_.inputs[i].donated && plan_.inputs[i].writeback != TSR_NONE) {
      // Memory that another input reads too is not given away: writing it early would change that input.
      in.give_away = args.handles != nullptr && (!plan_.replaces_states || may_write_over(*args.handles[i]));
      for (uint32_t k = 0; in.give_away && k < plan_.inputs.size(); ++k)
        in.give_away = k == i || args.handles[k]->buffer != args.handles[i]->buffer;
      irregular = irregular || !in.give_away;
    }
  }
  return irregular;
}

const std::shared_ptr<const SectionLayout>& PlanRunner::layout_for(RunState& state, uint32_t section, bool irregular) const {
  SectionRun& run = state.sections[section];
  if (plan_.is_static && !irregular) {
    if (run.layout() != plan_.primary.get()) run.materialise(plan_, plan_.primary, state.dims.data());
    run.key.clear();
    return run.shared_layout();
  }
  // The key: every number that a layout of this section depends on.
  std::vector<int64_t>& key = state.key;
  key.assign(1, section);
  key.insert(key.end(), state.dims.begin(), state.dims.begin() + static_cast<std::ptrdiff_t>(plan_.program.num_symbols()));
  for (size_t s = 0; s < plan_.program.num_symbols(); ++s)
    if (plan_.program.known(static_cast<uint32_t>(s)) > section) key[s + 1] = -1;  // left over from an earlier call
  if (irregular)
    for (uint32_t i = 0; i < plan_.inputs.size(); ++i) {
      const InputLayout& in = state.inputs[i];
      if (!in.strides && in.aligned && !(plan_.inputs[i].donated && !in.give_away)) continue;
      key.push_back(-2 - static_cast<int64_t>(i));
      key.push_back((in.aligned ? 1 : 0) + (in.give_away ? 2 : 0) + (in.strides ? 4 : 0));
      if (in.strides) key.insert(key.end(), in.strides, in.strides + plan_.inputs[i].rank);
    }
  const SectionLayout* before = section > 0 ? state.sections[section - 1].layout() : nullptr;
  if (run.layout() && run.key == key && run.layout()->previous.get() == before) return run.shared_layout();
  std::shared_ptr<const SectionLayout> layout;
  {
    std::lock_guard lock(layouts_mutex_);
    if (const auto it = layouts_.find(key); it != layouts_.end()) {
      layout = it->second.layout;
      it->second.used = ++layout_lookups_;
    }
  }
  // A layout borrows from the one before it: both must come from one chain.
  const std::shared_ptr<const SectionLayout> previous = section > 0 ? state.sections[section - 1].shared_layout() : nullptr;
  if (!layout || layout->previous != previous) {
    layout =
        plan_.executor ? layout_for_executor(state) : make_layout(plan_, section, state.dims.data(), state.inputs, previous);
    std::lock_guard lock(layouts_mutex_);
    if (layouts_.size() >= kKeptLayouts && !layouts_.contains(key))
      layouts_.erase(std::min_element(layouts_.begin(), layouts_.end(),
                                      [](const auto& a, const auto& b) { return a.second.used < b.second.used; }));
    layouts_[key] = {layout, ++layout_lookups_};
  }
  if (run.layout() != layout.get()) run.materialise(plan_, layout, state.dims.data());
  run.key = key;
  return run.shared_layout();
}

// A layout that an executor has taken, where it does. With sizes at their upper bounds, layouts that differ in nothing but
// sizes and strides share what the executor has made of the first.
std::shared_ptr<const SectionLayout> PlanRunner::layout_for_executor(const RunState& state) const {
  const auto plain = [&] { return make_layout(plan_, 0, state.dims.data(), state.inputs, nullptr); };
  const auto total = [](const SectionLayout& l) {
    return std::accumulate(l.arena_bytes.begin(), l.arena_bytes.end(), int64_t{0});
  };
  std::shared_ptr<const SectionLayout> layout;
  if (!plan_.bounds.empty()) {
    constexpr int64_t kSpare = int64_t{64} << 20, kTimes = 8;  // an arena for sizes that never come is no gain
    try {
      layout = make_layout(plan_, 0, state.dims.data(), state.inputs, nullptr, plan_.bounds.data());
      if (total(*layout) > kSpare && total(*layout) / kTimes > total(*plain())) layout = nullptr;
    } catch (const Error&) {
      layout = nullptr;  // the largest sizes are too large for memory, or a kernel does not take them
    }
  }
  if (!layout) {
    layout = plain();
    layout->executor = ExecutorLayout::make(plan_, *layout, state.dims.data(), *plan_.executor);
    return layout;
  }
  std::vector<int64_t> alike;
  for (const Instruction& e : layout->program) {
    alike.insert(alike.end(), {e.step, static_cast<int64_t>(e.kind), e.workspace_root, e.workspace_offset});
    for (const auto* all : {&e.inputs, &e.outputs})
      for (const uint32_t slot : *all) {
        alike.push_back(slot);
        if (slot == kNone) continue;
        const Resolved& r = layout->slots[slot];
        alike.insert(alike.end(), {r.place, r.index, r.offset});
      }
  }
  {
    const std::lock_guard lock(layouts_mutex_);
    const auto at = shared_executors_.find(alike);
    if (at != shared_executors_.end()) {
      layout->executor = at->second;
      return layout;
    }
  }
  layout->executor = ExecutorLayout::make(plan_, *layout, state.dims.data(), *plan_.executor);
  const std::lock_guard lock(layouts_mutex_);
  if (shared_executors_.size() >= kKeptLayouts) shared_executors_.clear();
  shared_executors_.emplace(std::move(alike), layout->executor);
  return layout;
}

}  // namespace tessera::core
