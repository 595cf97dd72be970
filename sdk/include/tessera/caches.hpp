// SPDX-License-Identifier: Apache-2.0
// Data caches of the machine.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace tessera {

// Bytes of what a file of sysfs calls "32768K" or "1M"; 0 where the text is no size.
inline int64_t parse_cache_size(const std::string& text) {
  char* end = nullptr;
  const long long n = std::strtoll(text.c_str(), &end, 10);
  const std::string unit = end;
  if (n <= 0 || end == text.c_str()) return 0;
  return unit.empty() ? n : unit == "K" ? n << 10 : unit == "M" ? n << 20 : unit == "G" ? n << 30 : 0;
}

// Bytes of the first core's data cache of `level` (1 to 3), `otherwise` where nobody says. The kernel is asked first: sysconf
// computes a size from what the processor says of its threads, which in a virtual machine may belong to ten times as many
// cores. `folder` is there for tests. Thread-safe; reads files, so ask once.
inline int64_t cache_bytes(int level, int64_t otherwise, const std::string& folder = "/sys/devices/system/cpu/cpu0/cache") {
  for (int i = 0; i < 16; ++i) {
    const std::string entry = folder + "/index" + std::to_string(i) + "/";
    const auto word = [&](const char* name) {
      std::string s;
      std::ifstream(entry + name) >> s;
      return s;
    };
    if (word("level") != std::to_string(level) || word("type") == "Instruction") continue;
    if (const int64_t bytes = parse_cache_size(word("size"))) return bytes;
  }
#ifdef _SC_LEVEL1_DCACHE_SIZE
  const int name = level == 1 ? _SC_LEVEL1_DCACHE_SIZE : level == 2 ? _SC_LEVEL2_CACHE_SIZE : _SC_LEVEL3_CACHE_SIZE;
  if (const long n = sysconf(name); n > 0) return n;
#endif
  return otherwise;
}

}  // namespace tessera
