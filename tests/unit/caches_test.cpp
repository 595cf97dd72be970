// SPDX-License-Identifier: Apache-2.0
// Sizes of caches as the system's files tell them.
#include "tessera/caches.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace caches_test {

TEST_CASE("texts of cache sizes") {
  CHECK(tessera::parse_cache_size("32768K") == 32 << 20);
  CHECK(tessera::parse_cache_size("1M") == 1 << 20);
  CHECK(tessera::parse_cache_size("512") == 512);
  for (const char* wrong : {"", "K", "-1K", "0K", "12Q", "1 M"}) CHECK(tessera::parse_cache_size(wrong) == 0);
}

TEST_CASE("the data cache of a level, else what is given") {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / ("tessera_caches_" + std::to_string(getpid()));
  const auto entry = [&](int index, const char* level, const char* type, const char* size) {
    const auto at = folder / ("index" + std::to_string(index));
    std::filesystem::create_directories(at);
    std::ofstream(at / "level") << level << "\n";
    std::ofstream(at / "type") << type << "\n";
    std::ofstream(at / "size") << size << "\n";
  };
  entry(0, "1", "Instruction", "64K");
  entry(1, "1", "Data", "48K");
  entry(2, "2", "Unified", "2048K");
  entry(3, "3", "Unified", "32768K");
  CHECK(tessera::cache_bytes(1, 7, folder.string()) == 48 << 10);
  CHECK(tessera::cache_bytes(2, 7, folder.string()) == 2 << 20);
  CHECK(tessera::cache_bytes(3, 7, folder.string()) == 32 << 20);
  std::filesystem::remove_all(folder);
  CHECK(tessera::cache_bytes(1, 7, folder.string()) > 0);  // what sysconf knows, or 7
}

}  // namespace caches_test
