// SPDX-License-Identifier: Apache-2.0
#include "cache/cache.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "config/config.hpp"
#include "log/log.hpp"
#include "plugin/plugin_host.hpp"
#include "support/error.hpp"
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
  if (stores.empty()) return nullptr;
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
      store.check(table(store).info(store.self, &info));
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
  store_.check(table(store_).get(store_.self, key.c_str(), append, bytes, &found));
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
    store_.check(table(store_).remove(store_.self, key.c_str()));
  } catch (const Error&) {
    // It is overwritten by the next put, or refused again.
  }
}

void Cache::put(CacheKind kind, const std::string& key, std::string_view payload) {
  if (!keeps(kind) || !writable_) return;
  try {
    const std::string bytes = encode_entry(kind, key, payload, signing_key_);
    store_.check(table(store_).put(store_.self, key.c_str(), bytes.data(), bytes.size()));
    trace("store", kind, key, static_cast<int64_t>(bytes.size()), {});
  } catch (const Error& e) {
    // Once is enough for a disk that is full.
    warn_once("the cache in '" + location_ + "' cannot be written: " + e.message());
    trace("failed", kind, key, -1, e.message());
  }
}

}  // namespace tessera::core
