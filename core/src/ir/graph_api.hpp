// SPDX-License-Identifier: Apache-2.0
// The tsr_graph_api table over Graph: what plugins call.
#pragma once

#include "tessera/abi.h"

namespace tessera::core {

const tsr_graph_api& graph_api();

}  // namespace tessera::core
