// SPDX-License-Identifier: Apache-2.0
// The op set as a table, for the plugin and for white-box tests that link it statically.
#pragma once

#include "tessera/abi.h"

namespace tessera::opset {

// Built once, lives as long as the process. Its callbacks reach the host through sdk::host_slot(), which the handshake sets
// (a test sets it itself) before the first of them runs.
const tsr_opset* tessera_standard_opset();

}  // namespace tessera::opset
