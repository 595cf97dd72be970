// SPDX-License-Identifier: Apache-2.0
// fuse: nodes of one backend that one kernel can compute become one `fused` node, so that what passes between them is never
// written to memory. Later passes may assume nothing new; the bits of every output are as before, but for those of attention
// that is put together.
#pragma once

#include <memory>

#include "tessera/plugin.hpp"

namespace tessera::passes {

std::unique_ptr<sdk::Pass> make_fuse();

}  // namespace tessera::passes
