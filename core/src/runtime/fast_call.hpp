// SPDX-License-Identifier: Apache-2.0
// The steady call: a static plan of kernels alone, flattened into one block of memory.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/embed.h"

namespace tessera::core {

class Plan;

// Everything that a call of such a plan reads stands in one allocation in the order in which it is read, because with many cached
// executables a call is as fast as the cache lines it touches are few. The block is never written: a call describes the tensors of one
// launch after the other on its stack, so that any number of threads share a block without taking turns.
class FastCall {
 public:
  // Whether a plan can be run this way: one section, static sizes, kernels only, outputs in memory of their own.
  static bool fits(const Plan& plan);
  struct Free {
    void operator()(const FastCall*) const noexcept;
  };
  using Owner = std::unique_ptr<const FastCall, Free>;
  static Owner make(const Plan& plan);

  // The inputs are as the plan's primary layout expects them. Outputs are new references. Throws what kernels report.
  void run(const Plan& plan, tsr_tensor_handle* const* inputs, tsr_tensor_handle** outputs) const;
  // Graph input i is the tensor args[leaves[i]].
  void run(const Plan& plan, const tsr_arg* args, const uint32_t* leaves, tsr_tensor_handle** outputs) const;

 private:
  FastCall() = default;
  struct Operand;
  struct Launch;
  struct Output;
  struct Arena;
  struct Held;
  template <class DataOf>
  void run_on(const Plan& plan, DataOf data_of, tsr_tensor_handle** outputs) const;
  void launch(const Plan& plan, void* const* bases) const;
  void give(Held& held, tsr_tensor_handle** outputs) const;

  uint32_t num_inputs_ = 0, num_outputs_ = 0, num_launches_ = 0, num_arenas_ = 0;
  int threads_ = 0;
  const Launch* launches_ = nullptr;
  const Operand* operands_ = nullptr;  // of all launches
  const Output* outputs_ = nullptr;
  const Arena* arenas_ = nullptr;
  const int64_t* numbers_ = nullptr;  // values of the size program; sizes, then strides, of each operand and output
};

}  // namespace tessera::core
