// SPDX-License-Identifier: Apache-2.0
// Numbers of a call as the tensors that a graph takes them as: a float as f64[], an integer n as an u8[n] that nobody reads.
#pragma once

#include <memory>

#include "memory/tensor.hpp"

namespace tessera::core {

// The tensors live as long as this does, on the stack for calls of ordinary width. Nothing may keep a reference to one: plans
// copy an input that is also an output.
class ScalarInputs {
 public:
  explicit ScalarInputs(uint32_t count) : heap_(count > kStack ? std::make_unique<Slot[]>(count) : nullptr) {}
  ScalarInputs(const ScalarInputs&) = delete;

  tsr_tensor_handle* add(const tsr_arg& arg) {
    Slot& s = (heap_ ? heap_.get() : stack_)[used_++];
    const bool integer = arg.kind == TSR_ARG_SYM_INT;
    s.value = arg.f;
    s.dims[0] = arg.i;
    s.dims[1] = 1;
    s.tensor.desc = {&s.value, integer ? TSR_U8 : TSR_F64, integer ? 1u : 0u, s.dims, s.dims + 1, 0, TSR_TENSOR_CONTIGUOUS};
    s.tensor.refcount = 1;
    s.tensor.requires_grad = s.tensor.marks = 0;
    s.tensor.type = 0;
    s.tensor.buffer = nullptr;
    return &s.tensor;
  }

 private:
  static constexpr uint32_t kStack = 8;
  struct alignas(64) Slot {  // kernels may want aligned inputs
    double value;
    int64_t dims[2];
    Tensor tensor;
  };
  Slot stack_[kStack];
  std::unique_ptr<Slot[]> heap_;
  uint32_t used_ = 0;
};

}  // namespace tessera::core
