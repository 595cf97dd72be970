// SPDX-License-Identifier: Apache-2.0
// The devices null:0 and null:1: separate memories of the host that behave like an accelerator's, so that copies between
// devices, streams and events can be tested without hardware.
#pragma once

#include <memory>

#include "tessera/abi.h"

namespace tessera::null_backend {

// The table and its `self`; both live as long as `keep`. Thread-safe, as abi.h asks of a device.
struct DeviceFactory {
  std::shared_ptr<void> keep;
  const tsr_device_table* table;
  void* self;
};
DeviceFactory make_device();

}  // namespace tessera::null_backend
