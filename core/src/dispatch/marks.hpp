// SPDX-License-Identifier: Apache-2.0
// What callers have said about dimensions of a tensor: mark_dynamic, mark_static, mark_unbacked.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/embed.h"

namespace tessera::core {

struct DimMark {
  uint32_t dim;
  tsr_mark mark;
  int64_t min, max;  // of dynamic and unbacked ones
  bool operator==(const DimMark&) const = default;
};

// Adds to the marks of `t`; a later mark of the same dimension wins. Sets of marks are interned for the life of the process
// (programs have a handful), so that a handle carries a number. Throws TSR-D003. Thread-safe for different handles.
void mark_tensor(tsr_tensor_handle& t, int64_t dim, uint32_t mark, int64_t min, int64_t max);
const std::vector<DimMark>& marks_of(uint32_t marks);  // in ascending order of dimensions
const DimMark* mark_of(uint32_t marks, uint32_t dim);  // null: none

}  // namespace tessera::core
