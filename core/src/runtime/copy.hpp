// SPDX-License-Identifier: Apache-2.0
// Copies between tensors of one dtype and one shape, whatever their strides and devices.
#pragma once

#include "tessera/abi.h"

namespace tessera::core {

// dst and src have equal dtypes and sizes and do not overlap (or are the same memory in the same layout). Either may be
// strided and on any device. Synchronous for the host; large host copies run on the host's threads. Throws TSR-R errors of the devices.
void copy_tensor(const tsr_tensor& dst, const tsr_tensor& src);

}  // namespace tessera::core
