// SPDX-License-Identifier: Apache-2.0
// Digests of a graph's constants without reading those that lie in files which have been read before.
//
// What stands behind "the same file, so the same bytes": SourceFile::identity(). A digest is remembered under the identity that
// the file had when its bytes were read and still has afterwards; it is believed when the file has that identity before and
// after the bytes that it stands for were read. Whatever has no identity is hashed each time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

class Cache;
class ConstantSources;

// content_digest() of each, in order. Asks `cache` for what files are known to hold, and tells it what was found. The bytes
// must have been in place before the call: copies are not looked at again.
std::vector<std::string> constant_digests(const ConstantSources& sources, const std::vector<std::string_view>& constants,
                                          Cache& cache, int settle_seconds);

}  // namespace tessera::core
