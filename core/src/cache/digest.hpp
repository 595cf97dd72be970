// SPDX-License-Identifier: Apache-2.0
// The digest by which large constants and blobs are known: SHA-256 over the length and the SHA-256 of every MiB, so that
// threads share the work.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

// 64 lower-case hex digits; the same whatever `parallel` says. Thread-safe.
std::string content_digest(std::string_view bytes, bool parallel);

// content_digest() of each. Threads share the MiBs of all of them, so that many small ones are no slower than one large one.
std::vector<std::string> content_digests(std::span<const std::string_view> all, bool parallel);

}  // namespace tessera::core
