// SPDX-License-Identifier: Apache-2.0
// The cache of a context: what goes into a store plugin and what is believed when it comes out. docs/caches.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cache/blob.hpp"
#include "cache/entry.hpp"
#include "cache/writer.hpp"

namespace tessera::core {

class Config;
class PluginHost;
struct Factory;

// Thread-safe. A cache never fails a program: what a store cannot do, and what it holds that is refused, is one warning each
// and a compile. Entries that are refused are removed, so that what is compiled in their place can be kept.
class Cache {
 public:
  // Null: the config loads no store, or nothing names a place for it.
  static std::unique_ptr<Cache> open(const PluginHost& plugins, const Config& config);
  ~Cache();

  bool keeps(CacheKind kind) const { return kind == CacheKind::kProfile ? profiles_ : graphs_; }
  // The payload under this key, if there is one that can be trusted. Counts as a use of the entry.
  std::optional<std::string> get(CacheKind kind, const std::string& key);
  void put(CacheKind kind, const std::string& key, std::string_view payload);
  // put(), after everything that was given to the writer before.
  void put_later(CacheKind kind, std::string key, std::string payload);

  // ---- blobs: entries that are mapped instead of read Only in a store that maps, and that nobody else can write to: what is
  // checked once must stay as it is. Signatures do not help there, since they are checked against what was mapped at that
  // moment.
  bool keeps_blobs() const { return graphs_ && maps_; }
  // The memory under this key, if there is one of this size that can be trusted. Header and size are checked each time, all of
  // it when `checked` does not know it; then it is added there. The same blob for as long as somebody in this process has it.
  std::shared_ptr<const Blob> map(const std::string& key, size_t bytes, CheckedBlobs& checked);
  // Written beside the program's work; in between, map() gives it to others of this process. What has been written counts as
  // checked: it was in memory a moment ago.
  void put_later(const std::string& key, std::shared_ptr<const Blob> blob, std::shared_ptr<CheckedBlobs> checked);
  void put_later(const std::string& key, std::shared_ptr<const CheckedBlobs> checked);  // as it is by then
  void flush() { writer_.flush(); }  // until all of that is written, or has failed

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
  // Reads and checks everything; what is refused is removed where that can be done.
  Transfer verify();
  Transfer export_bundle(const std::string& path);
  Transfer import_bundle(const std::string& path);

 private:
  Cache(const Factory& store, std::string location);
  bool fetch(const std::string& key, std::string* bytes) const;  // throws what the store reports
  void warn_once(const std::string& text);
  void trace(const char* what, CacheKind kind, const std::string& key, int64_t bytes, const std::string& why) const;

  std::shared_ptr<const Blob> map_entry(const std::string& key, size_t bytes, CheckedBlobs& checked);
  void put_blob(const std::string& key, const Blob& blob, CheckedBlobs& checked);
  std::shared_ptr<const void> map_bytes(const std::string& key, std::string_view* entry, CheckedBlobs::Identity* identity);

  const Factory& store_;
  std::string location_, signing_key_;
  bool graphs_ = true, profiles_ = true, maps_ = false;
  std::atomic<bool> writable_{true};
  std::mutex mutex_;
  std::set<std::string> warned_;
  std::map<std::string, std::weak_ptr<const Blob>> blobs_;  // of this process, by key
  CacheWriter writer_;                                      // its jobs use all of the above
};

// A bundle: "TSRBUNDLE1\n", entries one behind the other, then 64 hex digits: SHA-256 of everything before. "" or why it is
// refused; `each` is called for every entry, whose bytes are not checked further.
std::string read_bundle(std::string_view bytes, const std::function<void(std::string_view entry)>& each);

}  // namespace tessera::core
