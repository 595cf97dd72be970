// SPDX-License-Identifier: Apache-2.0
#include "run/executable.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "ir/graph.hpp"
#include "plan/layout.hpp"
#include "plan/placements.hpp"
#include "run/plan_runner.hpp"
#include "run/saved_values.hpp"
#include "support/error.hpp"
#include "trace/diagram.hpp"

namespace tessera::core {

namespace {

// Arrays of a call's inputs and outputs: on the stack for calls of ordinary width.
template <class T, size_t N>
class Small {
 public:
  explicit Small(size_t n) : heap_(n > N ? std::make_unique<T[]>(n) : nullptr), data_(heap_ ? heap_.get() : stack_.data()) {}
  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }

 private:
  std::array<T, N> stack_{};
  std::unique_ptr<T[]> heap_;
  T* data_;
};

}  // namespace

Executable::Executable() = default;
Executable::~Executable() = default;

std::unique_ptr<Executable> Executable::make(std::unique_ptr<Graph> graph, std::unique_ptr<Plan> plan,
                                             const CompileOptions& options) {
  std::unique_ptr<Executable> e(new Executable);
  e->keep_ = options.keep;
  e->graph_ = std::move(graph);
  e->plan_ = std::move(plan);
  e->plan_->finish();
  e->plan_->choose_executor(options);
  e->runner_ = std::make_unique<PlanRunner>(*e->plan_);
  if (e->plan_->primary && !e->plan_->primary->executor) e->fast_call_ = FastCall::make(*e->plan_);
  e->graph_->reset_scratch();
  (void)e->graph_->tables();  // brought up to date before threads share them
  return e;
}

std::string Executable::diagram() const { return graph_diagram(*graph_, placements(*plan_)); }

void Executable::check_count(size_t found, size_t expected, bool inputs) const {
  if (found == expected) return;
  const std::string what = inputs ? "input" : "output";
  std::string names;
  if (inputs)
    for (const InputSpec& i : plan_->inputs) names += (names.empty() ? ": " : ", ") + i.name;
  throw user_error("TSR-T020",
                   "graph '" + std::string(graph_->tables().name) + "' got " + std::to_string(found) + " " + what +
                       "s, expected " + std::to_string(expected) + names,
                   "pass one tensor per " + what + " of the graph, in its order");
}

void Executable::run(std::span<tsr_tensor_handle* const> inputs, std::span<tsr_tensor_handle*> outputs, bool guarded,
                     const RunContext* context) const {
  check_count(inputs.size(), num_inputs(), true);
  check_count(outputs.size(), num_outputs(), false);
  Small<const tsr_tensor*, 64> descs(inputs.size());
  Small<Tensor*, 64> handles(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i])
      throw user_error("TSR-T020", "input '" + plan_->inputs[i].name + "' of graph '" + std::string(graph_->tables().name) +
                                       "' is missing (a null handle)");
    descs[i] = &inputs[i]->desc;
    handles[i] = Tensor::from(inputs[i]);
  }
  Small<TensorRef, 16> results(outputs.size());
  CallArgs args{};
  args.inputs = descs.data();
  args.handles = handles.data();
  args.guarded = guarded;
  args.context = context;
  runner_->run(args, results.data());
  for (size_t j = 0; j < outputs.size(); ++j) outputs[j] = results[j].take();
}

void Executable::run_handing_over(std::span<TensorRef> inputs, std::span<tsr_tensor_handle*> outputs) const {
  check_count(inputs.size(), num_inputs(), true);
  check_count(outputs.size(), num_outputs(), false);
  Small<const tsr_tensor*, 64> descs(inputs.size());
  Small<Tensor*, 64> handles(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    handles[i] = Tensor::from(inputs[i].get());
    descs[i] = &handles[i]->desc;
  }
  Small<TensorRef, 16> results(outputs.size());
  CallArgs args{};
  args.inputs = descs.data();
  args.handles = handles.data();
  args.handed_over = inputs.data();
  runner_->run(args, results.data());
  for (size_t j = 0; j < outputs.size(); ++j) outputs[j] = results[j].take();
}

void Executable::run_raw(const tsr_raw_call& given) const {
  tsr_raw_call call{};  // what an older client does not know of stays null
  std::memcpy(&call, &given, std::min(given.struct_size, sizeof call));
  check_count(call.num_inputs, num_inputs(), true);
  check_count(call.num_outputs, num_outputs(), false);
  const bool in_turn = call.let_go && plan_->takes_turns;
  if (fast_call_ && !call.kernel && !in_turn && fast_call_->run_raw(call)) return;
  const size_t n = call.num_inputs;
  size_t missing = 0;  // strides to be computed
  for (size_t i = 0; i < n; ++i)
    if (!call.inputs[i].strides) missing += call.inputs[i].rank;
  Small<tsr_tensor, 64> tensors(n);
  Small<const tsr_tensor*, 64> descs(n);
  Small<int64_t, 64> strides(missing);
  int64_t* next = strides.data();
  for (size_t i = 0; i < n; ++i) {
    tsr_tensor& t = tensors[i];
    t = call.inputs[i];
    descs[i] = &t;
    if (t.rank > 0 && !t.sizes)
      throw user_error("TSR-T005",
                       "input '" + plan_->inputs[i].name + "': a tensor of rank " + std::to_string(t.rank) + " without sizes");
    bool dense = !t.strides;
    if (dense) {
      dense_strides({t.sizes, t.rank}, next);
      t.strides = next;
      next += t.rank;
    } else {
      dense = is_dense(t.rank, t.sizes, t.strides);
    }
    t.flags = dense ? TSR_TENSOR_CONTIGUOUS : 0u;
    if (!t.data && num_elements({t.sizes, t.rank}) != 0)
      throw user_error("TSR-T005",
                       "input '" + plan_->inputs[i].name + "': no data behind " + type_text(t.dtype, {t.sizes, t.rank}));
  }
  CallArgs args{};
  args.inputs = descs.data();
  args.raw = &call;
  runner_->run_raw(args);
}

void Executable::run_trusted(tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const {
  if (fast_call_) {
    bool aligned = true;
    if (plan_->needs_alignment)
      for (size_t i = 0; i < num_inputs(); ++i)
        aligned = aligned && reinterpret_cast<uintptr_t>(inputs[i]->desc.data) % kAlignment == 0;
    if (aligned && !fast_call_->gives_away()) return fast_call_->run(inputs, outputs);
    if (aligned && fast_call_->run_giving(inputs, outputs)) return;
  }
  const size_t n = num_inputs(), m = num_outputs();
  Small<const tsr_tensor*, 64> descs(n);
  Small<Tensor*, 64> handles(n);
  for (size_t i = 0; i < n; ++i) {
    descs[i] = &inputs[i]->desc;
    handles[i] = Tensor::from(inputs[i]);
  }
  Small<TensorRef, 16> results(m);
  runner_->run({descs.data(), handles.data(), nullptr, true, true}, results.data());
  for (size_t j = 0; j < m; ++j) outputs[j] = results[j].take();
}

}  // namespace tessera::core
