// SPDX-License-Identifier: Apache-2.0
// Manifest text. Whatever comes in, the result is a manifest or faults; one without faults has everything that loading reads.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plugin/manifest.hpp"
#include "plugin/plugin_host.hpp"

using namespace tessera::core;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Manifest m = parse_manifest({reinterpret_cast<const char*>(data), size}, "dir/fuzz.toml");
  for (const Fault& f : m.faults.items())
    if (!f.code.starts_with("TSR-P") || f.message.empty()) std::abort();
  if (!m.faults.empty()) return 0;
  if (m.id.empty() || m.library.empty() || m.library.find('/') != std::string::npos || m.hash.size() != 71) std::abort();
  for (const std::string& p : m.provides)
    if (kind_from_name(p.substr(0, p.find(':'))) == 0) std::abort();
  for (const OptionDecl& d : m.options) {
    Value fallback = d.fallback;
    if (!check_value(d, &fallback).empty()) std::abort();
  }
  return 0;
}
