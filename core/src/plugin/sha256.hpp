// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for the hash that a manifest states about its library.
#pragma once

#include <string>
#include <string_view>

namespace tessera::core {

std::string sha256_hex(std::string_view bytes);  // 64 lower-case hex digits
// Of a file's bytes. Throws TSR-C005 when it cannot be read. Remembers the result by path, size and modification time, so
// that a second context does not read large libraries again. Thread-safe.
std::string sha256_file(const std::string& path);

}  // namespace tessera::core
