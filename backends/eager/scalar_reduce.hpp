// SPDX-License-Identifier: Apache-2.0
// Reductions of complex numbers, in the same order as the vectorised ones.
#pragma once

#include "tile.hpp"

namespace eager {

ChunkFn scalar_chunk(Reduce kind, Comp comp);  // null: no such reduction
void fold_complex(Reduce kind, Comp comp, const void* partial, int64_t outputs, int64_t chunks, int64_t first, int64_t count,
                  void* out);

}  // namespace eager
