// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tessera/plugin.hpp"

namespace tessera::sim {

// What whoever calls the device table has to see to.
inline void need(bool ok, const char* function, const char* expected) {
  if (!ok) throw sdk::Error(TSR_BUG, "TSR-B038", std::string("device sim, ") + function + ": expected " + expected);
}

}  // namespace tessera::sim
