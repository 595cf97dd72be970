// SPDX-License-Identifier: Apache-2.0
// Constants on devices: each crosses once, whoever reads it.
#pragma once

#include <cstddef>

#include "memory/buffer.hpp"

namespace tessera::core {

// A block of the device with these bytes: one that any plan of the process placed there before, or a new one. It has arrived
// when this returns, and nobody writes it. Thread-safe.
BufferRef place_constant(Device& device, const void* data, size_t bytes);
// Gives back those that no plan holds any more.
void drop_unused_constants() noexcept;

}  // namespace tessera::core
