// SPDX-License-Identifier: Apache-2.0
#include "tuning/choices.hpp"

#include <algorithm>
#include <fstream>

#include "tessera/caches.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

// What times depend on: the processor, its caches, and this build of the kernels.
const std::string& machine() {
  static const std::string text = [] {
    std::string out = "processor ", line;
    for (std::ifstream info("/proc/cpuinfo"); std::getline(info, line);)
      if (line.starts_with("model name") || line.starts_with("cpu family") || line.starts_with("stepping")) {
        out += line + "; ";
        if (line.starts_with("stepping")) break;
      }
    for (int level = 1; level <= 3; ++level) out += " " + std::to_string(tessera::cache_bytes(level, 0));
    return out + "\n";
  }();
  return text;
}

}  // namespace

Choices::Choices(std::string directory, const Isa& isa) : kept_(std::move(directory), "cpu"), isa_(isa.name) {}

std::string Choices::holds_for() const {
  return "tessera cpu tuning 1 build " TSR_PLUGIN_VERSION "\n" + machine() + "isa " + isa_ + " threads " +
         std::to_string(std::max(1, sdk::host().core->num_threads())) + "\n";
}

}  // namespace cpu
