// SPDX-License-Identifier: Apache-2.0
// What one compile through a cache knows of constants: their digests, and the forms that kernels want them in.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/blob.hpp"
#include "ir/constant_source.hpp"
#include "tessera/abi.h"

namespace tessera::core {

class Cache;
class GraphConstants;
struct Factory;

// Of one thread and one compile. What is made is only given to the cache by store(), after a look at the files that constants
// came from: a digest must not stand for bytes that were written over it meanwhile.
class ConstantForms {
 public:
  // `constants` are those of the captured graph, whose memory must outlive this; `digests`: theirs, in order; `key`: of its
  // entry. Which blobs are known to be sound is kept beside that.
  ConstantForms(Cache& cache, const ConstantSources& sources, const GraphConstants& constants,
                const std::vector<std::string>& digests, const std::string& key);

  bool keeps_blobs() const;

  std::string digest(std::string_view constant);
  void know(std::string_view constant, std::string_view digest) { digests_[{constant.data(), constant.size()}] = digest; }
  // A constant of the captured graph with this content; null: it has none.
  const void* captured(const std::string& digest, size_t bytes) const;

  // Constants that passes made. `owner` null: the bytes are copied.
  void keep(const std::string& digest, std::string_view constant, std::shared_ptr<const void> owner);
  std::shared_ptr<const Blob> kept(const std::string& digest, size_t bytes);

  // What a kernel of `backend` made of a constant; null: nobody has it. *key: under which made() takes it; "" when it is too
  // small to be kept.
  std::shared_ptr<const Blob> find(const Factory& backend, const tsr_tensor& constant, std::string_view form, size_t bytes,
                                   std::string* key);
  void made(const std::string& key, std::shared_ptr<const Blob> blob) { made_.emplace_back(key, std::move(blob)); }

  // Whether the files that constants came from are what they were when they were named.
  bool names_hold() const { return sources_.unchanged(); }
  // Gives the cache what was made. False: a file has changed since it was named; nothing that rests on its bytes may be kept.
  bool store();
  bool stored_blobs() const { return stored_; }

 private:
  Cache& cache_;
  ConstantSources sources_;
  std::map<std::pair<const void*, size_t>, std::string> digests_;  // by memory
  std::map<std::string, const void*> captured_;                    // by digest and size
  std::string checked_key_;
  CheckedBlobs checked_;
  bool stored_ = false;
  std::vector<std::pair<std::string, std::shared_ptr<const Blob>>> made_;
};

}  // namespace tessera::core
