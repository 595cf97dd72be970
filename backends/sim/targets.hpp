// SPDX-License-Identifier: Apache-2.0
// How kernels that the kit generates run on sim: as text, compiled by the compiler inside the process and run by fibers when
// the stream comes to them, at the wave that the options say, threads and blocks in an order that the seed chooses.
#pragma once

#include <memory>
#include <string>

#include "device.hpp"
#include "tessera/kit/gpu/simt_target.hpp"

namespace tessera::sim {

struct TargetOptions {
  int wave = 32;
  uint64_t seed = 1;
};
std::shared_ptr<kit::SimtTarget> text_target(SimDevice& device, const TargetOptions& options);

}  // namespace tessera::sim
