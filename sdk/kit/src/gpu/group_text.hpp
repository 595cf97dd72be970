// SPDX-License-Identifier: Apache-2.0
// What GpuDialect::group is, by dialect.
#pragma once

#include <string>

#include "tessera/kit/program/program.hpp"

namespace tessera::kit {

std::string cuda_group_text(Type factors, int64_t columns);
std::string sim_group_text(Type factors, int64_t columns);

}  // namespace tessera::kit
