// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/plugin.hpp"

namespace tessera::opset {

// What tsr_op_impl.view returns.
enum class ViewAnswer : int {
  kCopy = TSR_VIEW_NO,        // this instance needs a copy
  kView = TSR_VIEW_YES,       // it is a view of this operand, with these sizes
  kAlways = TSR_VIEW_ALWAYS,  // and of every dense operand, with all sizes
};

// One instance of a view op at run time: `out` has dtype and sizes; the callback sets its data and `strides` (elements), unless
// the instance needs a copy. Never allocates.
struct ViewQuery {
  const tsr_call& call;
  const tsr_tensor& in;
  tsr_tensor& out;
  int64_t* strides;

  std::span<const int64_t> ints(std::string_view name) const { return sdk::Call{&call}.attr(name).as_ints(); }
  int64_t integer(std::string_view name) const { return sdk::Call{&call}.attr(name).as_int(); }
};

}  // namespace tessera::opset
