// SPDX-License-Identifier: Apache-2.0
// Constants on devices: each crosses once, whoever reads it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "memory/buffer.hpp"

namespace tessera::core {

// A constant of the host's memory that is to lie on a device.
struct HostConstant {
  const void* data = nullptr;
  size_t bytes = 0;
  std::string name;  // equal for equal contents alone, such as a digest; empty: one that is found by reading it
};

// A block of the device with the bytes of each, in order: one that any plan of the process placed there before, or a new one.
// All have arrived when this returns, and nobody writes them. Thread-safe. `names_hold` is asked once the bytes were read,
// where names were found earlier, of a file that may have been written to since: false: new blocks are this caller's alone.
std::vector<BufferRef> place_constants(Device& device, std::vector<HostConstant> constants,
                                       const std::function<bool()>& names_hold = {});
// Gives back those that no plan holds any more.
void drop_unused_constants() noexcept;

}  // namespace tessera::core
