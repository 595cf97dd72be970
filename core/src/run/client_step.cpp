// SPDX-License-Identifier: Apache-2.0
// Steps of a plan that the embedding client runs by its own means.
#include <algorithm>
#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "memory/copy.hpp"
#include "plan/layout.hpp"
#include "run/run_state.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

// What the client has given, until tensors of ours own it.
struct Given {
  std::vector<tsr_client_result> results;
  explicit Given(size_t n) : results(n, tsr_client_result{}) {}
  Given(const Given&) = delete;
  ~Given() {
    for (const tsr_client_result& r : results)
      if (r.release) r.release(r.ctx);
  }
};

std::string step_text(const ControlPlan& c) {
  return "client step " + std::to_string(c.client_step) + " ('" + c.client_name + "')";
}

// Whether what the client queues comes behind what the run has queued there, and before what it queues next.
bool is_in_order(const RunState& state, const Stream& s) {
  return state.context.client->client_queues && &current_stream(s.device()) == &s;
}

// Checks a result against what the graph says of it, and takes it over. Its memory is used as it is where a kernel could have
// written it so; else a copy.
TensorRef take(const RunState& state, const ControlPlan& c, size_t index, const tsr_tensor& expected,
               tsr_client_result& given) {
  const tsr_tensor& t = given.tensor;
  const std::span<const int64_t> sizes(expected.sizes, expected.rank);
  const std::string what = step_text(c) + " gave as result " + std::to_string(index);
  bool same = t.dtype == expected.dtype && t.rank == expected.rank && (t.rank == 0 || t.sizes);
  for (uint32_t k = 0; same && k < t.rank; ++k)
    same = expected.sizes[k] < 0 ? t.sizes[k] >= 0 : t.sizes[k] == expected.sizes[k];
  if (!same)
    throw user_error("TSR-R029",
                     what + (t.rank > 0 && !t.sizes ? " a tensor without sizes" : " " + type_text(t.dtype, {t.sizes, t.rank})) +
                         ", expected " + type_text(expected.dtype, sizes) + " (-1: a size that it tells)");
  if (t.device != expected.device)
    throw user_error("TSR-R029", what + " a tensor on '" + device(t.device).name() + "', expected one on '" +
                                     device(expected.device).name() + "'");
  TensorRef owner(tensor_wrap(t, given.release, given.ctx));
  given.release = nullptr;
  const bool aligned = reinterpret_cast<uintptr_t>(t.data) % kAlignment == 0;
  if (aligned && (owner->desc.flags & TSR_TENSOR_CONTIGUOUS)) return owner;
  Stream* const s = state.stream_of(expected.device);
  TensorRef copy(tensor_create(t.dtype, {t.sizes, t.rank}, t.device, s));
  copy_tensor(copy->desc, owner->desc, s, s);
  if (s && !is_in_order(state, *s)) s->synchronize(Wait::kNone);  // the client may take its memory back at once
  return copy;
}

}  // namespace

bool has_client_steps(const Plan& plan) {
  for (const auto& s : plan.steps) {
    if (!s->control) continue;
    if (s->control->kind == ControlPlan::kClient) return true;
    for (const auto& region : s->control->regions)
      if (has_client_steps(*region)) return true;
  }
  return false;
}

std::vector<TensorRef> run_client_step(const Plan& plan, const RunState& state, const SectionRun::Ready& r) {
  const ControlPlan& c = *r.step->control;
  const std::vector<uint32_t>& slots = r.step->outputs;
  std::vector<std::vector<int64_t>> sizes(slots.size());
  std::vector<tsr_tensor> expected(slots.size());
  for (size_t k = 0; k < slots.size(); ++k) {
    const Slot& s = plan.slots[slots[k]];
    const tsr_type& type = *plan.graph->value(s.value).type;
    for (uint32_t d = 0; d < s.rank; ++d) {
      const bool told = plan.program.section_of(type.sizes[d]) > r.step->section;
      sizes[k].push_back(told ? -1 : plan.dims_of(slots[k])[d].value(state.dims.data()));
    }
    expected[k] = {nullptr, s.dtype, s.rank, sizes[k].data(), nullptr, s.device, 0};
  }
  std::vector<TensorRef> out;
  if (c.predicate_unknown) {  // nothing has computed its operands: there is nothing to ask the client about
    for (size_t k = 0; k < slots.size(); ++k) {
      for (int64_t& n : sizes[k]) n = std::max<int64_t>(n, 0);
      out.emplace_back(tensor_create(expected[k].dtype, sizes[k], expected[k].device));
    }
    return out;
  }
  const tsr_raw_call* const client = state.context.client;
  if (!client || !client->client_step)
    throw user_error("TSR-R028",
                     "graph '" + std::string(plan.graph->tables().name) + "' has steps that its client runs, first " +
                         step_text(c) + ", and this call brings nobody who does",
                     "run it by run_raw with tsr_raw_call.client_step");
  for (uint32_t i = 0; i < r.launch.num_inputs; ++i)
    if (Stream* s = state.stream_of(r.launch.inputs[i].device); s && !is_in_order(state, *s)) {
      s->synchronize(Wait::kNone);
      s->raise_fault();
    }
  Given given(slots.size());
  tsr_client_call call{};
  call.struct_size = sizeof call;
  call.step = c.client_step;
  call.name = c.client_name;
  call.inputs = r.launch.inputs;
  call.num_inputs = r.launch.num_inputs;
  call.expected = expected.data();
  call.results = given.results.data();
  call.num_results = static_cast<uint32_t>(slots.size());
  call.finished = r.instruction->finished.data();
  call.num_finished = static_cast<uint32_t>(r.instruction->finished.size());
  throw_if(client->client_step(client->self, &call));
  for (size_t k = 0; k < slots.size(); ++k) out.push_back(take(state, c, k, expected[k], given.results[k]));
  return out;
}

}  // namespace tessera::core
