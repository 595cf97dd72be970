// SPDX-License-Identifier: Apache-2.0
// What the kit's SIMT backend needs of CUDA: descriptions of the devices, NVRTC as the compiler of its text, modules and
// launches of the driver.
#pragma once

#include <memory>

#include "device.hpp"
#include "tessera/kit/gpu/simt_target.hpp"

namespace tessera::cuda {

// A device in the terms of the kit, from the driver's numbers.
kit::GpuDescription describe(const Gpu& gpu);

std::shared_ptr<kit::SimtTarget> make_target(std::shared_ptr<CudaDevice> device, std::shared_ptr<Compiler> compiler);

}  // namespace tessera::cuda
