// SPDX-License-Identifier: Apache-2.0
// The SDK's wrapper turns what the plugin's own code throws into an error that names the plugin.
#include <stdexcept>
#include <tessera/plugin.hpp>

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) { throw std::runtime_error("vector::_M_range_check"); }
