// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "build.hpp"

namespace eager {

struct OpEntry {
  const char* op;
  KernelPtr (*make)(const Build&, int arg);
  int arg;
};

// Null: not an op of this backend.
const OpEntry* find_op(std::string_view op);

}  // namespace eager
