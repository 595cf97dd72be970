// SPDX-License-Identifier: Apache-2.0
// What is recorded of calls of compiled functions, for Tensor::backward. A tensor's handle has the number of its record in
// `requires_grad`: even ones are of tensors that want gradients, odd ones of results of recorded calls. Views and copies have
// 1, which is no record.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tessera/compile.hpp"
#include "tessera/tensor.hpp"

namespace tessera::detail {

void forget_gradient(uint32_t record) noexcept;  // the tensor goes away

inline bool is_recorded_result(const tsr_tensor_handle& h) { return h.requires_grad > 1 && (h.requires_grad & 1) != 0; }

// Records a call: `wanted` are tensors among its arguments, in the order of its gradients. Returns the results, as tensors that
// know of it, where they are of floating-point dtypes.
std::vector<Tensor> record_call(std::shared_ptr<Saved> saved, std::vector<Tensor> wanted, const std::vector<Tensor>& results);

// The number of a tensor that wants gradients; 0: it does not.
uint32_t wanted_record(tsr_tensor_handle& h);

}  // namespace tessera::detail
