// SPDX-License-Identifier: Apache-2.0
#include "plan/view.hpp"

#include "ir/op_callback.hpp"
#include "memory/tensor.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

ViewAnswer try_view(const OpRecord& op, const RuntimeCall& call, std::span<const int64_t> operand_strides,
                    std::span<const int64_t> sizes, uint32_t dtype, int64_t* strides, int64_t* offset) {
  const tsr_op_impl& impl = *op.impl;
  if (!impl.view || call.call.num_operands == 0 || !call.operands[0]) return ViewAnswer::kNo;
  const tsr_type& operand = *call.operands[0];
  // The callback computes addresses only; a base in the middle of the address space leaves room on both sides.
  const auto base = reinterpret_cast<char*>(uintptr_t{1} << 46);
  const auto rank = static_cast<uint32_t>(sizes.size());
  const bool dense = is_dense(operand.rank, operand.sizes, operand_strides.data());
  const tsr_tensor in{
      base, operand.dtype, operand.rank, operand.sizes, operand_strides.data(), 0, dense ? TSR_TENSOR_CONTIGUOUS : 0u};
  tsr_tensor out{nullptr, dtype, rank, sizes.data(), strides, 0, 0};
  for (uint32_t i = 0; i < rank; ++i) strides[i] = 0;
  const int answer = op_callback(op, "view", [&] { return impl.view(impl.self, &call.call, &in, &out, strides); });
  if (answer != TSR_VIEW_YES && answer != TSR_VIEW_ALWAYS) return ViewAnswer::kNo;
  if (is_packed(dtype) && !is_dense(rank, sizes.data(), strides)) return ViewAnswer::kNo;  // packed tensors have no strides
  *offset = out.data ? static_cast<char*>(out.data) - base : 0;
  return answer == TSR_VIEW_ALWAYS ? ViewAnswer::kAlways : ViewAnswer::kYes;
}

}  // namespace tessera::core
