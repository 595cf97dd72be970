// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "context/context.hpp"

namespace tessera::test {

// A private folder that goes with its owner.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  std::string path;
};

// A context whose config is `load` (plugin ids) and `text`, with the disk store in `folder`.
std::shared_ptr<core::Context> make_context(const std::string& folder, const std::vector<std::string>& load = {},
                                            const std::string& text = {}, const std::vector<std::string>& overrides = {});

// The one file in the folder that holds this entry; every file when the key is empty.
std::vector<std::string> entry_files(const std::string& folder, const std::string& key = {});
std::string read_bytes(const std::string& path);
void write_bytes(const std::string& path, const std::string& bytes);

}  // namespace tessera::test
