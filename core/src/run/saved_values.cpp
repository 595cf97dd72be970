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
  const auto hold = [&](tsr_tensor_handle* t) { held_.push_back(TensorRef::share(t)); };
  for (const uint32_t i : half().kept) hold(outputs[i]);
  for (const uint32_t i : half().inputs) hold(inputs[i]);
}

const BackwardHalf& SavedValues::half() const { return *forward_->backward; }
size_t SavedValues::num_gradients() const { return half().executable->num_outputs(); }

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
  used_ = true;
  const std::vector<TensorRef> held = std::move(held_);
  std::vector<tsr_tensor_handle*> inputs;
  for (const TensorRef& t : held) inputs.push_back(t.get());
  inputs.insert(inputs.end(), cotangents.begin(), cotangents.end());
  half().executable->run(inputs, gradients);
}

}  // namespace tessera::core
