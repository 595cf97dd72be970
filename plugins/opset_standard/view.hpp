// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tessera/plugin.hpp"

namespace tessera::opset {

// One instance of a view op at run time: `out` has dtype and sizes; the callback sets its data and `strides` (elements), or
// returns false when the instance needs a copy. Never allocates.
struct ViewQuery {
  const tsr_call& call;
  const tsr_tensor& in;
  tsr_tensor& out;
  int64_t* strides;

  std::span<const int64_t> ints(std::string_view name) const { return sdk::Call{&call}.attr(name).as_ints(); }
  int64_t integer(std::string_view name) const { return sdk::Call{&call}.attr(name).as_int(); }
};

}  // namespace tessera::opset
