// SPDX-License-Identifier: Apache-2.0
// Where the tests find their files and the build. From the environment that ctest sets, not from compile definitions: object
// files are then the same in every checkout, and a compiler cache serves them all.
#pragma once

#include <cstdlib>
#include <string>

namespace tessera::test {

inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : ".";
}
inline std::string source_dir() { return environment("TESSERA_SOURCE_DIR"); }
inline std::string build_dir() { return environment("TESSERA_BUILD_DIR"); }

}  // namespace tessera::test
