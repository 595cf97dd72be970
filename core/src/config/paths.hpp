// SPDX-License-Identifier: Apache-2.0
// Where things are, relative to the library that holds this code: <prefix>/lib/libtessera.so, <prefix>/lib/tessera/plugins,
// <prefix>/share/tessera/configs. The build tree has the same shape.
#pragma once

#include <string>

namespace tessera::core {

std::string default_plugin_dir();  // may not exist
std::string default_config_dir();
// A config named by a user: a path, or the bare name of an installed one ("eager", "eager.toml"). The path to open.
std::string resolve_config_path(const std::string& given);

}  // namespace tessera::core
