// SPDX-License-Identifier: Apache-2.0
// How a library of the fake queues work on the fake driver's streams.
#pragma once

#include <cstddef>
#include <functional>

#include "driver.hpp"

namespace fake {

// The bytes behind an address of device memory; null: there are not so many.
using Real = std::function<char*(const void*, size_t)>;
// Runs it, or adds it to what the stream captures. Work that returns false has touched what is not its own. Returns 0, or a
// cublasStatus_t. `form`: of the kernels that a library would launch; a node of a graph cannot change it.
int queue(tessera::cuda::CUstream stream, std::function<bool(const Real&)> work, unsigned form = 0);

}  // namespace fake
