// SPDX-License-Identifier: Apache-2.0
// Without the wrapper an exception leaves the library, against the rules of the boundary.
#include <stdexcept>

#include "common.h"

static tsr_error* escape(const tsr_host*, const tsr_options*, void**) { throw std::runtime_error("no device found"); }

extern "C" {
BROKEN_PLUGIN(desc.create = escape)
}
