// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu.hpp"

namespace tessera::cuda {

class Compiler;

// Copies between two tensors of one device with equal dtypes and sizes and any strides, in stream order. Throws TSR-H010 for
// more dimensions than its kernel takes.
void strided_copy(Gpu& gpu, Compiler& compiler, const tsr_tensor& dst, const tsr_tensor& src, tsr_stream* stream);

}  // namespace tessera::cuda
