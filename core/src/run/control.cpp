// SPDX-License-Identifier: Apache-2.0
// cond, while_loop and scan: the host runs nested plans.
#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "memory/copy.hpp"
#include "memory/parallel.hpp"
#include "run/plan_runner.hpp"
#include "run/run_state.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

// A bool[] wherever it lies.
bool read_bool(const RunState& state, const tsr_tensor& t) {
  uint8_t value = 0;
  const tsr_tensor host{&value, TSR_BOOL, 0, nullptr, nullptr, kCpu, TSR_TENSOR_CONTIGUOUS};
  Stream* const from = state.stream_of(t.device);
  copy_tensor(host, t, nullptr, from);
  if (from) from->raise_fault();
  return value != 0;
}

std::vector<TensorRef> run_region(const PlanRunner& region, const RunState& state,
                                  const std::vector<const tsr_tensor*>& inputs) {
  std::vector<TensorRef> out(region.plan().output_slots.size());
  CallArgs args{};
  args.inputs = inputs.data();
  args.outer_dims = state.dims.data();
  args.context = &state.context;
  region.run(args, out.data());
  return out;
}

// The result of zero iterations is the initial value; results are buffers of their own.
TensorRef own(const RunState& state, const tsr_tensor& t) {
  Stream* const s = state.stream_of(t.device);
  TensorRef out(tensor_create(t.dtype, {t.sizes, t.rank}, t.device, s));
  copy_tensor(out->desc, t, s, s);
  return out;
}

tsr_tensor slice(const tsr_tensor& t, int64_t index) {
  tsr_tensor s = t;
  s.rank -= 1;
  s.sizes += 1;
  s.strides += 1;
  const int64_t elements = is_packed(t.dtype) ? index * num_elements({s.sizes, s.rank}) : index * t.strides[0];
  if (is_packed(t.dtype) && elements * dtype_bits(t.dtype) % 8 != 0)
    throw user_error("TSR-R026",
                     "scan over a packed " + std::string(dtype_name(t.dtype)) + " tensor whose slices do not begin at a byte",
                     "cast it to i8 or u8 first");
  s.data = static_cast<char*>(t.data) + element_offset_bytes(dtype_bits(t.dtype), elements);
  s.flags = is_dense(s.rank, s.sizes, s.strides) ? TSR_TENSOR_CONTIGUOUS : 0;
  return s;
}

// Slices of equal sizes, one after the other along a new first dimension. Memory grows with their number: it doubles when it is
// full.
class Stack {
 public:
  Stack(const RunState& state, std::string_view op, tsr_device device)
      : state_(state), op_(op), device_(device), stream_(state.stream_of(device)) {}

  // Of a known number of slices, in any order.
  void put(const tsr_tensor& t, int64_t at, int64_t length, int64_t result, int64_t turn) {
    if (!all_) reserve(t, length);
    place(t, at, result, turn);
  }
  void push(const tsr_tensor& t, int64_t result) {
    if (!all_ || count_ == all_->desc.sizes[0]) reserve(t, std::max<int64_t>(4, 2 * count_));
    place(t, count_, result, count_);
    ++count_;
  }
  explicit operator bool() const { return static_cast<bool>(all_); }
  TensorRef take() { return std::move(all_); }
  // What was pushed, in memory of its size.
  TensorRef take_pushed() {
    if (count_ < all_->desc.sizes[0]) resize(count_);
    return std::move(all_);
  }

 private:
  void reserve(const tsr_tensor& slice, int64_t length) {
    if (all_) return resize(length);
    std::vector<int64_t> sizes = {length};
    sizes.insert(sizes.end(), slice.sizes, slice.sizes + slice.rank);
    all_ = TensorRef(tensor_create(slice.dtype, sizes, device_, stream_));
  }
  void resize(int64_t length) {
    const tsr_tensor& old = all_->desc;
    std::vector<int64_t> sizes(old.sizes, old.sizes + old.rank);
    sizes[0] = length;
    TensorRef other(tensor_create(old.dtype, sizes, device_, stream_));
    tsr_tensor from = old, to = other->desc;
    sizes[0] = std::min(length, old.sizes[0]);
    from.sizes = to.sizes = sizes.data();
    copy_tensor(to, from, stream_, stream_);
    state_.note_used(all_);
    all_ = std::move(other);
  }
  void place(const tsr_tensor& t, int64_t at, int64_t result, int64_t turn) {
    const tsr_tensor to = slice(all_->desc, at);
    if (to.rank != t.rank || !std::equal(to.sizes, to.sizes + to.rank, t.sizes))
      throw user_error("TSR-R026",
                       std::string(op_) + ": step " + std::to_string(turn) + " gives " + type_text(t.dtype, {t.sizes, t.rank}) +
                           " for result " + std::to_string(result) + ", the first step " +
                           type_text(to.dtype, {to.sizes, to.rank}),
                       "results that are stacked have one size in all steps: pad them, or stack what they are reduced to");
    copy_tensor(to, t, stream_, state_.stream_of(t.device));
  }

  const RunState& state_;
  std::string_view op_;
  tsr_device device_;
  Stream* stream_;  // null: the host
  TensorRef all_;
  int64_t count_ = 0;
};

// The stacked result of a loop that made no turn: empty, and 0 where a turn would have told the size.
TensorRef empty_stack(const Plan& plan, const RunState& state, uint32_t slot) {
  const tsr_type& t = *plan.graph->value(plan.slots[slot].value).type;
  const std::span<const int64_t> symbols(state.dims.data(), plan.program.num_symbols());
  std::vector<int64_t> sizes;
  for (uint32_t d = 0; d < t.rank; ++d)
    sizes.push_back(std::max<int64_t>(plan.graph->sizes().evaluate(t.sizes[d], symbols), 0));
  if (!sizes.empty()) sizes[0] = 0;
  const tsr_device d = plan.slots[slot].device;
  return TensorRef(tensor_create(plan.slots[slot].dtype, sizes, d, state.stream_of(d)));
}

std::vector<TensorRef> run_while(const PlanRunner& runner, const RunState& state, const SectionRun::Ready& r) {
  const Plan& plan = runner.plan();
  const ControlPlan& c = *r.step->control;
  const uint32_t n = r.launch.num_inputs;
  std::vector<const tsr_tensor*> inputs(n);
  for (uint32_t i = 0; i < n; ++i) inputs[i] = &r.launch.inputs[i];
  std::vector<TensorRef> carried(c.carried);
  std::vector<Stack> stacked;
  for (size_t k = c.carried; k < r.step->outputs.size(); ++k)
    stacked.emplace_back(state, r.step->record->name, plan.slots[r.step->outputs[k]].device);
  // Where nothing computes the predicate there is nothing to wait for: no turn is made.
  while (!c.predicate_unknown && read_bool(state, run_region(runner.region(r.instruction->step, 0), state, inputs)[0]->desc)) {
    std::vector<TensorRef> next = run_region(runner.region(r.instruction->step, 1), state, inputs);
    for (size_t k = 0; k < stacked.size(); ++k) {
      stacked[k].push(next[c.carried + k]->desc, static_cast<int64_t>(c.carried + k));
      state.note_used(next[c.carried + k]);
    }
    next.resize(c.carried);
    for (const TensorRef& t : carried) state.note_used(t);
    carried = std::move(next);
    for (uint32_t i = 0; i < c.carried; ++i) inputs[i] = &carried[i]->desc;
  }
  for (uint32_t i = 0; i < c.carried; ++i)
    if (!carried[i]) carried[i] = own(state, *inputs[i]);
  for (size_t k = 0; k < stacked.size(); ++k)
    carried.push_back(stacked[k] ? stacked[k].take_pushed() : empty_stack(plan, state, r.step->outputs[c.carried + k]));
  return carried;
}

// A scan that carries nothing is a map: no turn needs another. Threads share them, each with an arena of its own and with
// kernels that run on it alone, and every turn writes its slices of the results where they belong. What is left over by whole
// rounds of all threads is run turn by turn, by kernels on all threads.
std::vector<TensorRef> run_map(const PlanRunner& runner, const RunState& state, const SectionRun::Ready& r, uint32_t scanned,
                               int64_t length) {
  const Plan& body = runner.plan();
  const uint32_t n = r.launch.num_inputs;
  const auto num_results = static_cast<uint32_t>(body.output_slots.size());
  std::vector<TensorRef> stacked(num_results);
  for (uint32_t k = 0; k < num_results; ++k) {
    const Resolved& one = body.primary->slots[body.output_slots[k]];
    const Slot& slot = body.slots[body.output_slots[k]];
    std::vector<int64_t> sizes = {length};
    sizes.insert(sizes.end(), one.sizes, one.sizes + slot.rank);
    stacked[k] = TensorRef(tensor_create(slot.dtype, sizes, slot.device));
  }
  struct Turns {
    const PlanRunner& body;
    const RunState& state;
    const SectionRun::Ready& r;
    uint32_t n, scanned;
    const std::vector<TensorRef>& stacked;
    std::mutex mutex{};
    int64_t failed = INT64_MAX;
    std::exception_ptr error{};

    void run(int64_t begin, int64_t end) {
      std::vector<const tsr_tensor*> inputs(n);
      std::vector<tsr_tensor> slices(scanned);
      std::vector<void*> places(stacked.size());
      for (uint32_t i = 0; i < n; ++i) inputs[i] = i < scanned ? &slices[i] : &r.launch.inputs[i];
      CallArgs args{};
      args.inputs = inputs.data();
      args.outer_dims = state.dims.data();
      args.places = places.data();
      for (int64_t turn = begin; turn < end; ++turn) {
        for (uint32_t i = 0; i < scanned; ++i) slices[i] = slice(r.launch.inputs[i], turn);
        for (size_t k = 0; k < stacked.size(); ++k) places[k] = slice(stacked[k]->desc, turn).data;
        try {
          body.run_into(args);
        } catch (...) {
          std::lock_guard lock(mutex);
          if (turn < failed) {  // as if one had come after the other
            failed = turn;
            error = std::current_exception();
          }
          return;
        }
      }
    }
  } turns{runner, state, r, n, scanned, stacked};
  const int64_t threads = num_threads(), shared = threads > 1 ? length - length % threads : 0;
  parallel(
      shared, 1, [](void* t, int64_t begin, int64_t end) { static_cast<Turns*>(t)->run(begin, end); }, &turns);
  if (!turns.error) turns.run(shared, length);
  if (turns.error) std::rethrow_exception(turns.error);
  return stacked;
}

// Turns in ascending order, whose results lie on the host, have sizes that are known without running anything, and slices that
// begin where kernels may write.
bool is_map(const Plan& body, const ControlPlan& c) {
  if (c.carried != 0 || c.reverse || !body.is_static || !body.primary || !body.queues.empty()) return false;
  if (has_client_steps(body)) return false;  // those run one after the other, on the thread of the call
  return std::all_of(body.output_slots.begin(), body.output_slots.end(), [&](uint32_t s) {
    const Slot& slot = body.slots[s];
    if (slot.device != kCpu || is_packed(slot.dtype)) return false;
    return tensor_bytes(static_cast<tsr_dtype>(slot.dtype), num_elements({body.primary->slots[s].sizes, slot.rank})) %
               kAlignment ==
           0;
  });
}

std::vector<TensorRef> run_scan(const PlanRunner& runner, const RunState& state, const SectionRun::Ready& r) {
  const Plan& plan = runner.plan();
  const ControlPlan& c = *r.step->control;
  const PlanRunner& body = runner.region(r.instruction->step, 0);
  const uint32_t n = r.launch.num_inputs;
  const int64_t length = c.length.value(state.dims.data());
  std::vector<const tsr_tensor*> inputs(n);
  std::vector<tsr_tensor> slices(c.scanned);
  for (uint32_t i = 0; i < n; ++i) inputs[i] = &r.launch.inputs[i];
  for (uint32_t i = 0; i < c.scanned; ++i) {
    const tsr_tensor& t = r.launch.inputs[c.carried + i];
    if (t.rank == 0 || t.sizes[0] != length)
      throw user_error("TSR-R026", "scan over " + std::to_string(length) + " steps: scanned operand " + std::to_string(i) +
                                       " is " + type_text(t.dtype, {t.sizes, t.rank}));
    inputs[c.carried + i] = &slices[i];
  }
  if (is_map(body.plan(), c)) return run_map(body, state, r, c.scanned, length);
  std::vector<TensorRef> carried(c.carried);
  std::vector<Stack> stacked;
  for (size_t k = c.carried; k < r.step->outputs.size(); ++k)
    stacked.emplace_back(state, r.step->record->name, plan.slots[r.step->outputs[k]].device);
  for (int64_t step = 0; step < length; ++step) {
    const int64_t at = c.reverse ? length - 1 - step : step;
    for (uint32_t i = 0; i < c.scanned; ++i) slices[i] = slice(r.launch.inputs[c.carried + i], at);
    std::vector<TensorRef> out = run_region(body, state, inputs);
    // The first turn tells what only the data knows of the sizes.
    for (size_t k = 0; k < stacked.size(); ++k) {
      stacked[k].put(out[c.carried + k]->desc, at, length, static_cast<int64_t>(c.carried + k), step);
      state.note_used(out[c.carried + k]);
    }
    for (uint32_t i = 0; i < c.carried; ++i) {
      state.note_used(carried[i]);
      carried[i] = std::move(out[i]);
      inputs[i] = &carried[i]->desc;
    }
  }
  for (uint32_t i = 0; i < c.carried; ++i)
    if (!carried[i]) carried[i] = own(state, *inputs[i]);
  for (size_t k = 0; k < stacked.size(); ++k)
    carried.push_back(stacked[k] ? stacked[k].take() : empty_stack(plan, state, r.step->outputs[c.carried + k]));
  return carried;
}

}  // namespace

void run_control(const PlanRunner& runner, RunState& state, const SectionRun::Ready& r) {
  const Plan& plan = runner.plan();
  const ControlPlan& c = *r.step->control;
  for (const uint32_t s : r.step->symbols) state.dims[s] = 0;  // what an earlier call found
  std::vector<TensorRef> results;
  switch (c.kind) {
    case ControlPlan::kCond: {
      const bool taken = c.predicate_unknown || read_bool(state, r.launch.inputs[0]);
      std::vector<const tsr_tensor*> inputs;
      for (uint32_t i = 1; i < r.launch.num_inputs; ++i) inputs.push_back(&r.launch.inputs[i]);
      results = run_region(runner.region(r.instruction->step, taken ? 0 : 1), state, inputs);
      break;
    }
    case ControlPlan::kWhile: results = run_while(runner, state, r); break;
    case ControlPlan::kScan: results = run_scan(runner, state, r); break;
    case ControlPlan::kClient: results = run_client_step(plan, state, r); break;
  }
  // Sizes that only the branch taken could tell.
  std::vector<uint8_t> set(r.step->symbols.size(), 0);
  for (size_t k = 0; k < r.step->outputs.size(); ++k) {
    const uint32_t slot = r.step->outputs[k];
    for (uint32_t d = 0; d < plan.slots[slot].rank; ++d) {
      const DimRef& ref = plan.dims_of(slot)[d];
      const auto at = std::find(r.step->symbols.begin(), r.step->symbols.end(), static_cast<uint32_t>(ref.slot));
      if (ref.slot < 0 || at == r.step->symbols.end()) continue;
      const size_t i = static_cast<size_t>(at - r.step->symbols.begin());
      const int64_t found = results[k]->desc.sizes[d];
      if (set[i] && state.dims[*at] != found)
        throw user_error("TSR-R021", "two results of a control op disagree about size " +
                                         std::string(plan.graph->sizes().symbols()[*at].name) + ": " +
                                         std::to_string(state.dims[*at]) + " and " + std::to_string(found));
      state.dims[*at] = found;
      set[i] = 1;
    }
    state.dynamics[plan.slots[slot].index] = std::move(results[k]);
  }
  if (std::find(set.begin(), set.end(), 0) != set.end())
    throw user_error(
        "TSR-R021",
        "a result of a control op has a size that is computed from symbols which no result has as a size of its own");
}

}  // namespace tessera::core
