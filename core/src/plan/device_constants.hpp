// SPDX-License-Identifier: Apache-2.0
// Constants on devices: each crosses once, whoever reads it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "memory/buffer.hpp"

namespace tessera::core {

// A constant of the host's memory that is to lie on a device.
struct HostConstant {
  const void* data = nullptr;
  size_t bytes = 0;
  std::string name;  // equal for equal contents alone, such as a digest; empty: the content's digest, which takes a pass over it
};

// A block of the device with the bytes of each, in order: one that any plan of the process placed there before, or a new one.
// All have arrived when this returns, and nobody writes them. Thread-safe.
std::vector<BufferRef> place_constants(Device& device, std::vector<HostConstant> constants);
// Gives back those that no plan holds any more.
void drop_unused_constants() noexcept;

}  // namespace tessera::core
