// SPDX-License-Identifier: Apache-2.0
// dot_general with named axis lists.
#pragma once

#include "build.hpp"

namespace tessera::opset {

struct Contraction {
  Ints lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  tsr_dtype out_dtype = TSR_DTYPE_INVALID;
};

inline Var contract(const Var& a, const Var& b, const Contraction& c) {
  return a.call("dot_general", b,
                {sdk::attr_ints("lhs_batch", c.lhs_batch), sdk::attr_ints("rhs_batch", c.rhs_batch),
                 sdk::attr_ints("lhs_contract", c.lhs_contract), sdk::attr_ints("rhs_contract", c.rhs_contract),
                 sdk::attr_dtype("out_dtype", c.out_dtype)});
}

}  // namespace tessera::opset
