// SPDX-License-Identifier: Apache-2.0
// Views: asking an op whether its result is a strided window on its operand.
#pragma once

#include <cstdint>
#include <span>

#include "plan/runtime_call.hpp"
#include "tessera/abi.h"

namespace tessera::core {

struct OpRecord;

// Asks impl.view for the view of an operand with these strides. `strides` has room for sizes.size() numbers. *offset: bytes
// from the operand's element 0.
enum class ViewAnswer {
  kNo,      // this instance needs a copy
  kYes,     // it is a view for these sizes and strides
  kAlways,  // and for every dense operand, whatever its sizes are
};
ViewAnswer try_view(const OpRecord& op, const RuntimeCall& call, std::span<const int64_t> operand_strides,
                    std::span<const int64_t> sizes, uint32_t dtype, int64_t* strides, int64_t* offset);

}  // namespace tessera::core
