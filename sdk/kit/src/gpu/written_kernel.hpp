// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simt_kernel.hpp"
#include "tessera/kit/gpu/simt_backend.hpp"

namespace tessera::kit {

// One node on its way to a kernel. There are two programs where the first is right for some sizes only.
struct SimtBackend::WrittenKernel {
  std::vector<tsr_dim> symbol_dims;
  std::vector<uint32_t> operand_of, result_of;
  std::vector<OperandStride> strides;
  int in_place = -1;
  std::string name;
  std::string key;                       // architecture, compiler and text: what was built for one is right for every other
  std::optional<SimtSchedule> schedule;  // nothing: it has none to choose
  std::vector<Program> programs;
  std::vector<std::vector<GpuLaunch>> launches;
  std::vector<std::string> entries;
  std::shared_ptr<SimtCode> code;
};

}  // namespace tessera::kit
