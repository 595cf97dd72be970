// SPDX-License-Identifier: Apache-2.0
// Work per (sample, channel) plane of an [N, C, spatial..] tensor: the plane as contiguous values of the compute type.
#pragma once

#include "build.hpp"

namespace eager {

inline constexpr int64_t kPlaneSlots = 64;  // planes that may be buffered at once

// Bytes of workspace for planes of x and of a result of this many elements.
int64_t planes_workspace(const Dims& x, int64_t out_plane, uint32_t dtype);

// Calls f(plane, x values, result values) for every plane and stores the result (out_plane contiguous elements of out each).
void for_planes(const Isa& isa, const View& x, const tsr_tensor& out, int64_t out_plane, void* workspace,
                FunctionRef<void(int64_t plane, const void* x, void* y)> f);

}  // namespace eager
