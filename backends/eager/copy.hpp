// SPDX-License-Identifier: Apache-2.0
// Copies between strided views of the same dtype and sizes: all that transpose, slice, concat, pad and their kin are made of.
#pragma once

#include "build.hpp"

namespace eager {

// Any strides (also 0 and negative) on both sides; dst's elements must be distinct. Packed dtypes work too.
void copy_view(const View& src, const View& dst);
// dst[...] = the element at `value` (one element of dst's dtype, contiguous).
void fill_view(const View& dst, const void* value);
// Parts of a view.
View narrow(View v, int axis, int64_t start, int64_t size);

}  // namespace eager
