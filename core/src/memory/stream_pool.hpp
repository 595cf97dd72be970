// SPDX-License-Identifier: Apache-2.0
// Blocks of devices that have streams: reused at once on the stream that gave them back, behind an event on others.
#pragma once

#include "memory/buffer.hpp"

namespace tessera::core {

Buffer* allocate_streamed(Device& device, size_t bytes, Stream& stream);
void recycle_streamed(Buffer* b) noexcept;
void set_pool_limit(Device& device, size_t bytes);  // that wait in the pool at most; 0: none wait
void trim_streamed(Device& device) noexcept;        // gives every block that waits back to the device

// Before memory of somebody else is given back: its home stream, else the host, waits until all streams have passed what they
// did with it.
void leave_uses(const Buffer& b) noexcept;

}  // namespace tessera::core
