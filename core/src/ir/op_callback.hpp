// SPDX-License-Identifier: Apache-2.0
// Calls of the functions that an op set plugin gives with an op.
#pragma once

#include "ir/records.hpp"
#include "support/escaped.hpp"

namespace tessera::core {

// f(), which calls `function` of the op. An exception that leaves it is the bug of the op's plugin: TSR-P046.
template <class F>
auto op_callback(const OpRecord& op, const char* function, F&& f) {
  return contained(f, [&] { return "plugin '" + op.plugin + "': an exception left " + function + " of op '" + op.name + "'"; });
}

}  // namespace tessera::core
