// SPDX-License-Identifier: Apache-2.0
// The devices null:0 and null:1: separate memories of the host that behave like an accelerator's, so that copies between
// devices, streams and events can be tested without hardware.
#pragma once

#include <memory>

#include "tessera/plugin.hpp"

namespace tessera::null_backend {

inline constexpr uint32_t device_count = 2;

std::unique_ptr<sdk::Device> make_device();

}  // namespace tessera::null_backend
