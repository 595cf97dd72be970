// SPDX-License-Identifier: Apache-2.0
#include "run/saved_values.hpp"

#include <string>

#include "ir/graph.hpp"
#include "run/executable.hpp"
#include "support/error.hpp"

namespace tessera::core {

SavedValues::SavedValues(std::shared_ptr<const Executable> forward, std::span<tsr_tensor_handle* const> inputs,
                         std::span<tsr_tensor_handle* const> outputs)
    : forward_(std::move(forward)) {
  const auto hold = [&](tsr_tensor_handle* t) {
    held_.push_back(TensorRef::share(t));
    versions_.push_back(held_.back()->buffer->version.load(std::memory_order_relaxed));
  };
  for (const uint32_t i : half().kept) hold(outputs[i]);
  for (const uint32_t i : half().inputs) hold(inputs[i]);
}

const BackwardHalf& SavedValues::half() const { return *forward_->backward; }
size_t SavedValues::num_gradients() const { return half().executable->num_outputs(); }

std::string SavedValues::name_of(size_t held) const {
  const auto input = [&](uint32_t i) { return "'" + forward_->plan().inputs[i].name + "'"; };
  if (held >= half().kept.size()) return input(half().inputs[held - half().kept.size()]);
  const uint32_t output = half().kept[held];
  return output < half().num_results
             ? "its result " + std::to_string(output)
             : "the value that was kept as %" +
                   std::string(forward_->graph().value(forward_->graph().region(0).outputs[output]).name);
}

void SavedValues::run(std::span<tsr_tensor_handle* const> cotangents, std::span<tsr_tensor_handle*> gradients) {
  const std::string name = "@" + std::string(forward_->graph().tables().name);
  if (used_)
    throw user_error("TSR-A020",
                     "the backward half of " + name + " runs a second time for one forward run: what was kept for it is gone",
                     "run the forward half again, or return all gradients that are wanted from one function");
  if (cotangents.size() != half().num_cotangents)
    throw user_error("TSR-A021",
                     "the backward half of " + name + " got " + std::to_string(cotangents.size()) + " cotangents, expected " +
                         std::to_string(half().num_cotangents),
                     "pass one for each result that is differentiated");
  for (size_t i = 0; i < held_.size(); ++i) {
    const Tensor& t = *held_[i];
    const uint32_t now = t.buffer->version.load(std::memory_order_relaxed);
    if (now != versions_[i])
      throw user_error("TSR-A022",
                       "the backward half of " + name + " needs " + name_of(i) + ", " +
                           type_text(t.desc.dtype, {t.desc.sizes, t.desc.rank}) +
                           ", as its forward half has seen it, and its memory has been written in place since (" +
                           std::to_string(now - versions_[i]) + (now - versions_[i] == 1 ? " write)" : " writes)"),
                       "run backward before the write, write into a copy (clone()), or compute value and gradient in one "
                       "compiled function");
  }
  used_ = true;
  std::vector<TensorRef> inputs = std::move(held_);
  for (tsr_tensor_handle* t : cotangents) inputs.push_back(TensorRef::share(t));
  half().executable->run_handing_over(inputs, gradients);
}

}  // namespace tessera::core
