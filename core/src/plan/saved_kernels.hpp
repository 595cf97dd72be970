// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "tessera/abi.h"

namespace tessera::core {

// Kernels as their backends wrote them (tsr_kernel.serialize), by node. Only those are kept whose sizes are all numbers: a
// kernel that reads dims[] was compiled against the slots of one plan.
struct SavedKernels {
  std::map<tsr_id, std::string> bytes;
};

}  // namespace tessera::core
