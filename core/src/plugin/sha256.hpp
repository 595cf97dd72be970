// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), for the hash that a manifest states about its library.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace tessera::core {

std::string sha256_hex(std::string_view bytes);  // 64 lower-case hex digits
// Of two messages at once, which takes little longer than one of them where they have the same length.
std::pair<std::string, std::string> sha256_hex_of_both(std::string_view a, std::string_view b);
// Of a file's bytes. Throws TSR-C005 when it cannot be read. Remembers the result by path, size and modification time, so
// that a second context does not read large libraries again. Thread-safe.
std::string sha256_file(const std::string& path);

}  // namespace tessera::core
