// SPDX-License-Identifier: Apache-2.0
#include "cache/cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cache/digest.hpp"
#include "config/config.hpp"
#include "log/log.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
#include "support/escaped.hpp"
#include "trace/trace.hpp"

namespace tessera::core {

namespace {

const tsr_store& table(const Factory& f) { return f.as<tsr_store>(); }

// A key is a secret: nobody else may read it, and one that is too short can be guessed.
std::string read_key_file(const std::string& path) {
  constexpr size_t kLeast = 32, kMost = 4096;
  struct stat s {};
  if (stat(path.c_str(), &s) != 0)
    throw environment_error("TSR-K003", "cache.key_file: cannot read '" + path + "': " + std::strerror(errno),
                            "name a file with a key");
  if ((s.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw user_error("TSR-K003", "cache.key_file: '" + path + "' can be read or written by other users", "chmod 600 " + path);
  std::ifstream in(path, std::ios::binary);
  std::string key(kMost + 1, '\0');
  in.read(key.data(), static_cast<std::streamsize>(key.size()));
  key.resize(static_cast<size_t>(in.gcount()));
  if (key.size() < kLeast || key.size() > kMost)
    throw user_error("TSR-K003",
                     "cache.key_file: '" + path + "' holds " + std::to_string(key.size()) + " bytes; expected " +
                         std::to_string(kLeast) + " to " + std::to_string(kMost),
                     "head -c 32 /dev/urandom > " + path);
  return key;
}

void* append(void* ctx, size_t bytes) noexcept {
  auto& s = *static_cast<std::string*>(ctx);
  try {
    s.resize(bytes);
    return s.data();
  } catch (...) {
    return nullptr;
  }
}

}  // namespace

Cache::Cache(const Factory& store, std::string location) : store_(store), location_(std::move(location)) {}
Cache::~Cache() = default;

std::unique_ptr<Cache> Cache::open(const PluginHost& plugins, const Config& config) {
  const std::vector<const Factory*> stores = plugins.all(TSR_STORE);
  if (stores.empty() || config.get_bool("force_disable_caches")) return nullptr;
  const std::string& wanted = config.get_string("cache.store");
  const Factory& store = wanted.empty() ? *stores.front() : plugins.get(TSR_STORE, wanted);
  const char* off = std::getenv("TESSERA_GRAPH_CACHE");
  const bool graphs = config.get_bool("cache.graphs") && !(off && std::string_view(off) == "0");
  const bool profiles = config.get_bool("cache.profiles");
  if (!graphs && !profiles) return nullptr;
  tsr_store_info info{};
  info.struct_size = sizeof info;
  if (table(store).info) {
    try {
      store.call("info", [&] { return table(store).info(store.self, &info); });
    } catch (const Error& e) {
      log_warning("nothing is cached: " + e.message() + (e.hint().empty() ? "" : " (" + e.hint() + ")"));
      return nullptr;
    }
    if (!info.location || !*info.location) return nullptr;  // nobody said where
  }
  std::unique_ptr<Cache> cache(new Cache(store, info.location ? info.location : store.name));
  cache->graphs_ = graphs;
  cache->profiles_ = profiles;
  cache->writable_ = !table(store).info || info.writable != 0;
  cache->maps_ = table(store).map && table(store).put_parts && info.exclusive != 0;
  if (const std::string& path = config.get_string("cache.key_file"); !path.empty()) {
    cache->signing_key_ = read_key_file(path);
  } else if (info.exclusive == 0) {
    const std::string why = "another user could write to '" + cache->location_ + "', and cached entries are code";
    log_warning("nothing is cached: " + why + (info.why && *info.why ? std::string(" (") + info.why + ")" : "") +
                "; make it private, or sign entries with cache.key_file");
    if (trace_enabled()) TraceEvent("cache").text("what", "off").text("kind", "").text("key", "").text("why", why).write();
    return nullptr;
  }
  return cache;
}

void Cache::warn_once(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (!warned_.insert(text).second) return;
  }
  log_warning(text);
}

void Cache::trace(const char* what, CacheKind kind, const std::string& key, int64_t bytes, const std::string& why) const {
  if (!trace_enabled()) return;
  TraceEvent e("cache");
  e.text("what", what).text("kind", cache_kind_name(kind)).text("key", key);
  if (bytes >= 0) e.number("bytes", bytes);
  if (!why.empty()) e.text("why", why);
  e.write();
}

bool Cache::fetch(const std::string& key, std::string* bytes) const {
  int found = 0;
  bytes->clear();
  store_.call("get", [&] { return table(store_).get(store_.self, key.c_str(), append, bytes, &found); });
  return found != 0;
}

std::optional<std::string> Cache::get(CacheKind kind, const std::string& key) {
  if (!keeps(kind)) return std::nullopt;
  std::string bytes;
  try {
    if (!fetch(key, &bytes)) {
      trace("miss", kind, key, -1, {});
      return std::nullopt;
    }
  } catch (const Error& e) {
    warn_once("the cache in '" + location_ + "' cannot be read: " + e.message());
    trace("failed", kind, key, -1, e.message());
    return std::nullopt;
  }
  EntryView entry{};
  std::string why = decode_entry(bytes, signing_key_, &entry);
  if (why.empty() && entry.key != key) why = "it stands under another key than its own";
  if (why.empty() && entry.kind != kind)
    why = std::string("it is a ") + cache_kind_name(entry.kind) + ", expected a " + cache_kind_name(kind);
  if (!why.empty()) {
    refuse(kind, key, why);
    return std::nullopt;
  }
  trace("hit", kind, key, static_cast<int64_t>(bytes.size()), {});
  return std::string(entry.payload);
}

void Cache::refuse(CacheKind kind, const std::string& key, const std::string& why) {
  warn_once("entry " + key.substr(0, 16) + " of the cache in '" + location_ + "' is refused and made again: " + why);
  trace("refused", kind, key, -1, why);
  if (!writable_) return;
  try {
    store_.call("remove", [&] { return table(store_).remove(store_.self, key.c_str()); });
  } catch (const Error&) {
    // It is overwritten by the next put, or refused again.
  }
}

void Cache::put(CacheKind kind, const std::string& key, std::string_view payload) {
  if (!keeps(kind) || !writable_) return;
  try {
    const std::string bytes = encode_entry(kind, key, payload, signing_key_);
    store_.call("put", [&] { return table(store_).put(store_.self, key.c_str(), bytes.data(), bytes.size()); });
    trace("store", kind, key, static_cast<int64_t>(bytes.size()), {});
  } catch (const Error& e) {
    // Once is enough for a disk that is full.
    warn_once("the cache in '" + location_ + "' cannot be written: " + e.message());
    trace("failed", kind, key, -1, e.message());
  }
}

void Cache::put_later(CacheKind kind, std::string key, std::string payload) {
  if (!keeps(kind) || !writable_) return;
  writer_.add([this, kind, key = std::move(key), payload = std::move(payload)] { put(kind, key, payload); });
}

// ---------------------------------------------------------------------------------------------------------------- blobs

std::shared_ptr<const Blob> Cache::map(const std::string& key, size_t bytes, CheckedBlobs& checked) {
  if (!keeps_blobs()) return nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = blobs_.find(key); at != blobs_.end())
      if (std::shared_ptr<const Blob> b = at->second.lock(); b && b->bytes() == bytes) return b;
  }
  std::shared_ptr<const Blob> b = map_entry(key, bytes, checked);
  if (!b) return nullptr;
  const std::lock_guard lock(mutex_);
  if (blobs_.size() > 4096) std::erase_if(blobs_, [](const auto& e) { return e.second.expired(); });
  blobs_[key] = b;
  return b;
}

// Null: there is no such entry. Throws what the store reports.
std::shared_ptr<const void> Cache::map_bytes(const std::string& key, std::string_view* entry,
                                             CheckedBlobs::Identity* identity) {
  tsr_mapping m{};
  m.struct_size = sizeof m;
  int found = 0;
  store_.call("map", [&] { return table(store_).map(store_.self, key.c_str(), &m, &found); });
  if (!found) return nullptr;
  *entry = {static_cast<const char*>(m.bytes), m.length};
  std::copy(std::begin(m.identity), std::end(m.identity), identity->begin());
  const auto release = [where = "release of store '" + store_.name + "'"](const tsr_mapping* p) {
    const std::unique_ptr<const tsr_mapping> mapping(p);
    try {
      if (mapping->release) mapping->release(mapping->ctx);
    } catch (...) {
      log_warning("an exception left " + where + ": " + what_was_thrown());
    }
  };
  return std::shared_ptr<const tsr_mapping>(new tsr_mapping(m), release);
}

std::shared_ptr<const Blob> Cache::map_entry(const std::string& key, size_t bytes, CheckedBlobs& checked) {
  std::string_view entry;
  CheckedBlobs::Identity identity{};
  std::shared_ptr<const void> owner;
  try {
    owner = map_bytes(key, &entry, &identity);
  } catch (const Error& e) {
    warn_once("the cache in '" + location_ + "' cannot be read: " + e.message());
    trace("failed", CacheKind::kBlob, key, -1, e.message());
    return nullptr;
  }
  if (!owner) {
    trace("miss", CacheKind::kBlob, key, -1, {});
    return nullptr;
  }
  std::string digest;
  std::string why = decode_blob_header(entry, key, signing_key_, &digest);
  if (why.empty() && entry.size() - kBlobOffset != bytes)
    why = "it holds " + std::to_string(entry.size() - kBlobOffset) + " bytes of memory, expected " + std::to_string(bytes);
  if (why.empty() && !checked.has(key, identity)) {
    if (content_digest(entry.substr(kBlobOffset), true) == digest)
      checked.add(key, identity);
    else
      why = "its bytes do not have the hash that it states";
  }
  if (!why.empty()) {
    refuse(CacheKind::kBlob, key, why);
    return nullptr;
  }
  trace("hit", CacheKind::kBlob, key, static_cast<int64_t>(entry.size()), {});
  return Blob::borrow(entry.substr(kBlobOffset), owner, true);
}

void Cache::put_later(const std::string& key, std::shared_ptr<const Blob> blob, std::shared_ptr<CheckedBlobs> checked) {
  if (!keeps_blobs()) return;
  {
    const std::lock_guard lock(mutex_);
    blobs_[key] = blob;
  }
  if (!writable_) return;
  writer_.add([this, key, blob = std::move(blob), checked = std::move(checked)] { put_blob(key, *blob, *checked); });
}

void Cache::put_later(const std::string& key, std::shared_ptr<const CheckedBlobs> checked) {
  if (!keeps_blobs() || !writable_) return;
  writer_.add([this, key, checked = std::move(checked)] { put(CacheKind::kChecked, key, checked->encode()); });
}

void Cache::put_blob(const std::string& key, const Blob& blob, CheckedBlobs& checked) {
  try {
    const std::string digest = content_digest(blob.view(), false);
    const std::string header = encode_blob_header(key, blob.bytes(), digest, signing_key_);
    const tsr_part parts[] = {{header.data(), header.size()}, {blob.data(), blob.bytes()}};
    store_.call("put_parts", [&] { return table(store_).put_parts(store_.self, key.c_str(), parts, std::size(parts)); });
    trace("store", CacheKind::kBlob, key, static_cast<int64_t>(header.size() + blob.bytes()), {});
    // Another process may have put its own there meanwhile: the same bytes, if its header says so.
    std::string_view entry;
    CheckedBlobs::Identity identity{};
    if (const auto owner = map_bytes(key, &entry, &identity); owner && entry.starts_with(header)) checked.add(key, identity);
  } catch (const Error& e) {
    warn_once("the cache in '" + location_ + "' cannot be written: " + e.message());
    trace("failed", CacheKind::kBlob, key, -1, e.message());
  }
}

}  // namespace tessera::core
