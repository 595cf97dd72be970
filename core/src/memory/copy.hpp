// SPDX-License-Identifier: Apache-2.0
// Copies between tensors of one dtype and one shape, whatever their strides and devices.
#pragma once

#include "tessera/abi.h"

namespace tessera::core {

class Stream;

// dst and src have equal dtypes and sizes and do not overlap (or are the same memory in the same layout). Either may be strided
// and on any device. Memory of the host may be used when it returns; large host copies run on the host's threads. Copies to a
// device are queued on `to`, its stream, and those from a device to the host on `from`; null: the thread's current ones. Both
// streams are behind the work that wrote the source, and `to` behind what still reads the destination. Throws TSR-R errors of
// the devices.
void copy_tensor(const tsr_tensor& dst, const tsr_tensor& src, Stream* to = nullptr, Stream* from = nullptr);

}  // namespace tessera::core
