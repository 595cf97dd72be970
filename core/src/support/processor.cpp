// SPDX-License-Identifier: Apache-2.0
#include "support/processor.hpp"

#include <fstream>

namespace tessera::core {

const std::string& processor_text() {
  static const std::string text = [] {
    std::ifstream in("/proc/cpuinfo");
    std::string out;
    for (std::string line; std::getline(in, line) && !line.empty();)
      for (const char* key : {"vendor_id", "model name", "flags", "CPU implementer", "CPU part", "Features"})
        if (line.starts_with(key)) out += line + "\n";
    return out;
  }();
  return text;
}

}  // namespace tessera::core
