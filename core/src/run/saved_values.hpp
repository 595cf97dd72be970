// SPDX-License-Identifier: Apache-2.0
// The backward half of a program that is called apart from its forward half, and what a run of the one leaves for the other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/tensor.hpp"

namespace tessera::core {

class Executable;

// Of a forward half, whose outputs are the program's own, up to the first that depends on a cotangent, and then what is kept.
struct BackwardHalf {
  std::unique_ptr<Executable> executable;  // inputs: what is kept, what the forward half got, and the cotangents
  uint32_t num_results = 0;                // outputs of the forward half that are the program's own
  std::vector<uint32_t> kept;              // outputs of the forward half that the backward half reads
  std::vector<uint32_t> inputs;            // inputs of the forward half that it reads, too
  uint32_t num_cotangents = 0;             // in the order in which the program asks for them
};

// What one run of a forward half has left for its backward half. Used once, from one thread at a time.
class SavedValues {
 public:
  // `inputs` and `outputs`: of that run.
  SavedValues(std::shared_ptr<const Executable> forward, std::span<tsr_tensor_handle* const> inputs,
              std::span<tsr_tensor_handle* const> outputs);
  // Gradients are new references. What was kept is released, whether this succeeds or not. Throws TSR-A020 (called a second
  // time), TSR-A021 (another number of cotangents), TSR-A022 (one of the tensors has been written since; then what was kept
  // stays) and what the run throws.
  void run(std::span<tsr_tensor_handle* const> cotangents, std::span<tsr_tensor_handle*> gradients);
  const BackwardHalf& half() const;
  size_t num_gradients() const;

 private:
  std::string name_of(size_t held) const;
  std::shared_ptr<const Executable> forward_;
  std::vector<TensorRef> held_;     // what the forward half has computed, then its inputs
  std::vector<uint32_t> versions_;  // of their memory
  bool used_ = false;
};

}  // namespace tessera::core
