// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA256 (RFC 2104, FIPS 198-1) over the core's own SHA-256: twenty lines, so that libtessera needs no cryptography
// library.
#pragma once

#include <string>
#include <string_view>

namespace tessera::core {

std::string hmac_sha256_hex(std::string_view key, std::string_view message);  // 64 lower-case hex digits
// Takes the same time wherever the first difference is.
bool equal_in_constant_time(std::string_view a, std::string_view b);

}  // namespace tessera::core
