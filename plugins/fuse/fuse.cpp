// SPDX-License-Identifier: Apache-2.0
#include "pass.hpp"

TESSERA_PLUGIN("tessera.pass.fuse", TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("fuse", tessera::passes::make_fuse());
}
