// SPDX-License-Identifier: Apache-2.0
// A host for tests that load plugins but never run a graph: the core's own services and no graph tables.
#pragma once

#include <string>

#include "places.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"

namespace tessera::test {

inline const tsr_host& bare_host() {
  static const tsr_host host = core::make_host(&core::host_core(), nullptr, nullptr);
  return host;
}

inline std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); !from.empty() && at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

}  // namespace tessera::test
