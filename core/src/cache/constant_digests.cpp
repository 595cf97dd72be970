// SPDX-License-Identifier: Apache-2.0
#include "cache/constant_digests.hpp"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cache/cache.hpp"
#include "cache/digest.hpp"
#include "cache/entry.hpp"
#include "ir/constant_source.hpp"
#include "plugin/sha256.hpp"

namespace tessera::core {

namespace {

using Place = std::pair<uint64_t, uint64_t>;  // offset, length

struct KnownFile {
  std::string identity, key;
  std::map<Place, std::string> digests;
  bool changed = false;
};

bool read_known(std::string_view payload, std::map<Place, std::string>* out) {
  ByteReader in(payload);
  while (!in.done()) {
    Place place;
    std::string_view digest;
    if (!in.u64(&place.first) || !in.u64(&place.second) || !in.bytes(64, &digest) || !is_cache_key(digest)) return false;
    (*out)[place] = digest;
  }
  return true;
}

std::string write_known(const std::map<Place, std::string>& digests) {
  ByteWriter out;
  for (const auto& [place, digest] : digests) {
    out.u64(place.first);
    out.u64(place.second);
    out.bytes(digest);
  }
  return out.take();
}

Place place_of(const ConstantSource& source, std::string_view constant) {
  return {source.offset + static_cast<uint64_t>(constant.data() - source.data), constant.size()};
}

}  // namespace

std::vector<std::string> constant_digests(const ConstantSources& sources, const std::vector<std::string_view>& constants,
                                          Cache& cache, int settle_seconds) {
  std::vector<std::string> out(constants.size());
  std::map<const SourceFile*, KnownFile> files;
  std::vector<std::pair<size_t, KnownFile*>> unknown;  // constants, and the file that is to know them
  for (size_t i = 0; i < constants.size(); ++i) {
    const ConstantSource* source = sources.find(constants[i].data(), constants[i].size());
    KnownFile* file = nullptr;
    if (source) {
      const auto [at, added] = files.try_emplace(source->file.get());
      file = &at->second;
      if (added) {
        file->identity = source->file->identity(settle_seconds);
        file->key = sha256_hex("digests of constants 1\n" + file->identity);
        if (!file->identity.empty())
          if (const std::optional<std::string> payload = cache.get(CacheKind::kDigests, file->key);
              payload && !read_known(*payload, &file->digests)) {
            file->digests.clear();
            cache.refuse(CacheKind::kDigests, file->key, "it is malformed");
          }
      }
      if (file->identity.empty()) file = nullptr;
    }
    if (file)
      if (const auto at = file->digests.find(place_of(*source, constants[i])); at != file->digests.end()) {
        out[i] = at->second;
        continue;
      }
    unknown.emplace_back(i, file);
  }
  std::vector<std::string_view> contents;
  for (const auto& [i, file] : unknown) contents.push_back(constants[i]);
  std::vector<std::string> found = content_digests(contents, true);
  for (size_t k = 0; k < unknown.size(); ++k) {
    const auto [i, file] = unknown[k];
    out[i] = std::move(found[k]);
    if (!file) continue;
    file->digests[place_of(*sources.find(constants[i].data(), constants[i].size()), constants[i])] = out[i];
    file->changed = true;
  }
  for (const auto& [source, file] : files) {
    if (file.identity.empty()) continue;
    if (source->identity(settle_seconds) != file.identity) {  // it changed meanwhile: what was believed of it may be wrong
      for (size_t i = 0; i < constants.size(); ++i)
        if (const ConstantSource* s = sources.find(constants[i].data(), constants[i].size()); s && s->file.get() == source)
          out[i] = content_digest(constants[i], true);
    } else if (file.changed) {
      cache.put_later(CacheKind::kDigests, file.key, write_known(file.digests));
    }
  }
  return out;
}

}  // namespace tessera::core
