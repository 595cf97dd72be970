// SPDX-License-Identifier: Apache-2.0
// Expected output inside the file that produces it: lines that begin with "//| ". One file is a whole test of a pass
// (`tessera opt FILE --check`) or of an op (`tessera run FILE --check`).
#pragma once

#include <string>
#include <string_view>

namespace tessera::command {

// Compares `actual` with the expectation in the file at `path`. 0 when they are equal; else prints the first lines that differ
// to stderr and returns kCheckFailed. When the environment has TESSERA_BLESS=1 it rewrites the expectation instead and returns
// 0. A file without an expectation fails.
int check_expectation(const std::string& path, std::string_view actual);

}  // namespace tessera::command
