// SPDX-License-Identifier: Apache-2.0
// The tables behind a config: every key that the core knows, and what each mode changes. A new key is one row here; what is
// accepted in a file, shown by `config options` and checked in an override follows from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/options.hpp"

namespace tessera::core {

struct KeyDecl : OptionDecl {  // `name` is the full key: "pipeline.verify"
  bool fixed = false;          // decides which plugins are loaded, or is read once per context: see Config::derive
};
const std::vector<KeyDecl>& known_keys();
const KeyDecl* find_key(std::string_view key);  // by its name, or by one that it had before
// Keys whose values are lists of entries, checked by code of their own.
inline constexpr std::string_view kPluginsLoad = "plugins.load";
inline constexpr std::string_view kPipelinePasses = "pipeline.passes";
std::vector<std::string> all_key_names();
bool is_known_section(std::string_view section);  // "pipeline"

struct ModeDecl {
  std::string name, help;
  std::vector<std::pair<std::string, Value>> overlay;  // by full key
};
const std::vector<ModeDecl>& known_modes();
const ModeDecl* find_mode(std::string_view name);

}  // namespace tessera::core
