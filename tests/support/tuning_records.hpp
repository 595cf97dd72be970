// SPDX-License-Identifier: Apache-2.0
// Records of what measuring decided, as tessera/kit/object_cache.hpp keeps them in files: a header, the problem, the choice.
#pragma once

#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera::test {

struct TuningRecord {
  std::string head, problem, choice;
};

inline std::vector<std::filesystem::path> tuning_records(const std::filesystem::path& cache) {
  std::vector<std::filesystem::path> out;
  if (std::filesystem::exists(cache / "tuned"))
    for (const auto& f : std::filesystem::directory_iterator(cache / "tuned")) out.push_back(f.path());
  return out;
}
inline TuningRecord read_record(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(in)), {});
  REQUIRE(all.size() > 32);
  uint64_t key = 0;
  std::memcpy(&key, all.data() + 8, 8);
  REQUIRE(all.size() > 32 + key);
  return {all.substr(0, 32), all.substr(32, key), all.substr(32 + key)};
}
inline void write_record(const std::filesystem::path& path, TuningRecord r) {
  uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : r.choice) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  const uint64_t bytes = r.choice.size();
  std::memcpy(r.head.data() + 16, &bytes, 8);
  std::memcpy(r.head.data() + 24, &sum, 8);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << r.head << r.problem << r.choice;
}

}  // namespace tessera::test
