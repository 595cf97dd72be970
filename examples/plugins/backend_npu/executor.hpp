// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <tessera/executor.hpp>

namespace acme_npu {

class NpuDevice;
// Hands all steps of a plan to the device with one call of the driver.
std::shared_ptr<tessera::sdk::Executor> make_executor(std::shared_ptr<NpuDevice> device);

}  // namespace acme_npu
