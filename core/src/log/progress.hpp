// SPDX-License-Identifier: Apache-2.0
// How far work of seconds is, from those who do it to the one who waits: see listen_to_progress in embed.h. Thread-safe.
#pragma once

#include <cstdint>

namespace tessera::core {

using ProgressListener = void (*)(void* context, const char* what, uint64_t done, uint64_t total);

// In place of the listener before, which is not called any more when this returns. Null: nobody listens.
void listen_to_progress(ProgressListener listener, void* context) noexcept;
void tell_progress(const char* what, uint64_t done, uint64_t total) noexcept;

}  // namespace tessera::core
