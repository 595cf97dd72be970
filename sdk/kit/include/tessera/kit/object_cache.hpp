// SPDX-License-Identifier: Apache-2.0
// Compiled objects on disk, one file each. A file is named by a hash of its key, holds the whole key, which is compared, and a
// checksum of its bytes: neither a collision nor a torn or damaged file is ever taken for a hit. Files are written beside and
// renamed into place, so that processes may share a directory. Deleting files, or the directory, is always safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera::kit {

class ObjectCache {
 public:
  // Empty: caches nothing. The directory is made when the first object is stored, for its owner alone.
  explicit ObjectCache(std::string directory) : directory_(std::move(directory)) {}

  bool enabled() const { return !directory_.empty(); }
  const std::string& directory() const { return directory_; }

  // Nothing: not stored, damaged, or a file that somebody else could have written. Thread-safe.
  std::optional<std::string> get(std::string_view key) const;
  // What keeps it from being stored (a full disk, a directory that cannot be written), for a log; empty: stored. Thread-safe.
  std::string put(std::string_view key, std::string_view object) const;

  std::string path_of(std::string_view key) const;

 private:
  std::string directory_;
};

// $TESSERA_CACHE_DIR/NAME, else $XDG_CACHE_HOME/tessera/NAME, else ~/.cache/tessera/NAME; empty when none of the three is set.
std::string default_cache_directory(std::string_view name);

}  // namespace tessera::kit
