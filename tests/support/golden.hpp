// SPDX-License-Identifier: Apache-2.0
// Golden text: compares with a file under tests/golden/ and shows the first difference. TESSERA_BLESS=1 rewrites the file
// instead (`./dev bless`).
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace tessera::test {

inline std::string source_dir() {
  const char* dir = std::getenv("TESSERA_SOURCE_DIR");
  return dir ? dir : ".";
}
inline std::string build_dir() {
  const char* dir = std::getenv("TESSERA_BUILD_DIR");
  return dir ? dir : ".";
}

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); !from.empty() && at != text.npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
  return text;
}

// `name` is relative to tests/golden ("plugins/bad_hash.txt"). The stored text ends with one newline.
inline void check_golden(const std::string& name, std::string actual) {
  while (!actual.empty() && actual.back() == '\n') actual.pop_back();
  actual += '\n';
  const std::string path = source_dir() + "/tests/golden/" + name;
  if (std::getenv("TESSERA_BLESS")) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << actual;
    SUCCEED();
    return;
  }
  INFO("golden file " << path << "; rewrite it with ./dev bless and look at the difference");
  CHECK(actual == read_file(path));
}

}  // namespace tessera::test
