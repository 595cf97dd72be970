// SPDX-License-Identifier: Apache-2.0
// What a run takes from its caller: streams and an allocator.
#pragma once

#include <span>

#include "memory/stream.hpp"
#include "tessera/embed.h"

namespace tessera::core {

struct RunContext {
  std::span<Stream* const> streams;          // at most one per device
  const tsr_allocator* allocator = nullptr;  // null: the pool
  const tsr_raw_call* client = nullptr;      // who runs client steps; null: nobody

  // Of a device that has streams: the caller's, else the thread's current one.
  Stream& stream_of(Device& d) const {
    for (Stream* s : streams)
      if (&s->device() == &d) return *s;
    return current_stream(d);
  }
};

}  // namespace tessera::core
