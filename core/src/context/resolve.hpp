// SPDX-License-Identifier: Apache-2.0
// From context options to a bound config and the manifests to load, without opening a library.
#pragma once

#include <string>
#include <vector>

#include "config/config.hpp"
#include "config/faults.hpp"
#include "plugin/manifest.hpp"
#include "tessera/embed.h"

namespace tessera::core {

struct ResolvedPlugin {
  const Manifest* manifest;  // in ResolvedPlugins::manifests
  bool optional;
};

struct ResolvedPlugins {
  Config config;                         // bound
  std::vector<std::string> search_dirs;  // in order
  std::vector<Manifest> manifests;       // everything found
  std::vector<ResolvedPlugin> plugins;   // requested, found and sound, in the config's order
  Faults faults;                         // of the config and of requested plugins
  std::vector<std::string> notices;      // one line each
};

// Throws only when the config file cannot be read (TSR-C005). Options may be null.
ResolvedPlugins resolve_plugins(const tsr_context_options* options);

}  // namespace tessera::core
