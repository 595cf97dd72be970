// SPDX-License-Identifier: Apache-2.0
// Bytes of kernels for caches; see the kit's header.
#pragma once

#include "tessera/kit/saved.hpp"

namespace cpu {

using tessera::kit::SavedReader;
using tessera::kit::SavedWriter;

}  // namespace cpu
