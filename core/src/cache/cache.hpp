// SPDX-License-Identifier: Apache-2.0
// The cache of a context: what goes into a store plugin and what is believed when it comes out. docs/caches.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/entry.hpp"

namespace tessera::core {

class Config;
class PluginHost;
struct Factory;

// Thread-safe. A cache never fails a program: what a store cannot do, and what it holds that is refused, is one warning each and a
// compile. Entries that are refused are removed, so that what is compiled in their place can be kept.
class Cache {
 public:
  // Null: the config loads no store, or nothing names a place for it.
  static std::unique_ptr<Cache> open(const PluginHost& plugins, const Config& config);
  ~Cache();

  bool keeps(CacheKind kind) const { return kind == CacheKind::kGraph ? graphs_ : profiles_; }
  // The payload under this key, if there is one that can be trusted. Counts as a use of the entry.
  std::optional<std::string> get(CacheKind kind, const std::string& key);
  void put(CacheKind kind, const std::string& key, std::string_view payload);
  // What was got turned out to be unusable: it is reported and removed.
  void refuse(CacheKind kind, const std::string& key, const std::string& why);

  const std::string& location() const { return location_; }

  // ---- the command `tessera cache`. Those throw TSR-K errors.
  struct Item {
    std::string key;
    uint64_t bytes;
    int64_t last_used_unix;
  };
  std::vector<Item> list() const;  // the most recently used first
  // Removes the least recently used entries until at most `max_bytes` are left. Returns what was removed.
  std::vector<Item> prune(uint64_t max_bytes);
  struct Transfer {
    size_t entries = 0, refused = 0;
    uint64_t bytes = 0;
    std::vector<std::string> reasons;  // of what was refused
  };
  Transfer export_bundle(const std::string& path);
  Transfer import_bundle(const std::string& path);

 private:
  Cache(const Factory& store, std::string location);
  bool fetch(const std::string& key, std::string* bytes) const;  // throws what the store reports
  void warn_once(const std::string& text);
  void trace(const char* what, CacheKind kind, const std::string& key, int64_t bytes, const std::string& why) const;

  const Factory& store_;
  std::string location_, signing_key_;
  bool graphs_ = true, profiles_ = true;
  std::atomic<bool> writable_{true};
  std::mutex mutex_;
  std::set<std::string> warned_;
};

// A bundle: "TSRBUNDLE1\n", entries one behind the other, then 64 hex digits: SHA-256 of everything before. "" or why it is refused;
// `each` is called for every entry, whose bytes are not checked further.
std::string read_bundle(std::string_view bytes, const std::function<void(std::string_view entry)>& each);

}  // namespace tessera::core
