// SPDX-License-Identifier: Apache-2.0
// Memory for what every call reads: whole cache lines, packed into few pages.
#pragma once

#include <cstddef>

namespace tessera::core {

inline constexpr size_t kHugePage = size_t{2} << 20;

// With many cached entries a call is as fast as the cache lines and pages that it touches are few. Objects that it reads come
// from here instead of the heap, where each would stand among what else its compile has left. Blocks begin at cache lines. What
// is freed serves the next block of its size and stays with the process. Thread-safe; takes a lock.
void* allocate_lines(size_t bytes);
void free_lines(void* p, size_t bytes) noexcept;  // as many as were asked for

}  // namespace tessera::core
