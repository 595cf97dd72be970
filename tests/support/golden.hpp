// SPDX-License-Identifier: Apache-2.0
// Golden text. With TESSERA_BLESS=1 in the environment a mismatch rewrites the expected file and prints the difference;
// otherwise it fails the running test with the difference.
#pragma once

#include <string>
#include <vector>

namespace tessera::test {

// `path` is relative to the tests folder: "golden/ir/bad_type.expected".
void check_golden(const std::string& path, const std::string& actual);

std::string golden_path(const std::string& path);
std::string read_file(const std::string& path);  // fails the test when it cannot be read
// Files of a folder (relative to the tests folder) with this extension, sorted; relative paths like the argument of
// check_golden.
std::vector<std::string> golden_files(const std::string& folder, const std::string& extension);
// Lines that differ: "-expected", "+actual", " both", with three lines around.
std::string text_difference(const std::string& expected, const std::string& actual);

}  // namespace tessera::test
