// SPDX-License-Identifier: Apache-2.0
// The digest by which large constants and blobs are known: SHA-256 over the length and the SHA-256 of every MiB, so that threads share the work.
#pragma once

#include <string>
#include <string_view>

namespace tessera::core {

// 64 lower-case hex digits; the same whatever `parallel` says. Thread-safe.
std::string content_digest(std::string_view bytes, bool parallel);

}  // namespace tessera::core
