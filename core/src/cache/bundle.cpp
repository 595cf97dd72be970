// SPDX-License-Identifier: Apache-2.0
// What the command does with a whole cache: list, prune, export, import.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>

#include "cache/cache.hpp"
#include "plugin/plugin_host.hpp"
#include "plugin/sha256.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {

constexpr std::string_view kBundle = "TSRBUNDLE1\n";
constexpr size_t kHash = 64;

std::string read_whole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw user_error("TSR-K001", "cannot read the bundle '" + path + "': " + std::strerror(errno));
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

std::string read_bundle(std::string_view bytes, const std::function<void(std::string_view)>& each) {
  if (!bytes.starts_with(kBundle)) return "it is no bundle of a cache";
  if (bytes.size() < kBundle.size() + kHash) return "it is cut short";
  const std::string_view hash = bytes.substr(bytes.size() - kHash);
  if (sha256_hex(bytes.substr(0, bytes.size() - kHash)) != hash)
    return "its bytes do not have the hash that it states: damaged or cut short";
  for (std::string_view rest = bytes.substr(kBundle.size(), bytes.size() - kHash - kBundle.size()); !rest.empty();) {
    const uint64_t length = entry_length(rest);
    if (length == 0 || length > rest.size()) return "it holds something that is no entry";
    each(rest.substr(0, static_cast<size_t>(length)));
    rest.remove_prefix(static_cast<size_t>(length));
  }
  return {};
}

std::vector<Cache::Item> Cache::list() const {
  std::vector<Item> items;
  const auto each = [](void* ctx, const char* key, uint64_t bytes, int64_t used) noexcept {
    try {
      static_cast<std::vector<Item>*>(ctx)->push_back({key, bytes, used});
    } catch (...) {
      // Out of memory: the rest is not listed.
    }
  };
  store_.call("list", [&] { return store_.as<tsr_store>().list(store_.self, each, &items); });
  std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    return a.last_used_unix != b.last_used_unix ? a.last_used_unix > b.last_used_unix : a.key < b.key;
  });
  return items;
}

std::vector<Cache::Item> Cache::prune(uint64_t max_bytes) {
  std::vector<Item> items = list(), removed;
  uint64_t total = 0;
  for (const Item& i : items) total += i.bytes;
  while (!items.empty() && total > max_bytes) {
    store_.call("remove", [&] { return store_.as<tsr_store>().remove(store_.self, items.back().key.c_str()); });
    total -= items.back().bytes;
    removed.push_back(std::move(items.back()));
    items.pop_back();
  }
  return removed;
}

Cache::Transfer Cache::export_bundle(const std::string& path) {
  Transfer t;
  std::string out(kBundle);
  for (const Item& item : list()) {
    std::string bytes;
    if (!fetch(item.key, &bytes)) continue;  // removed meanwhile
    EntryView entry{};
    std::string why = decode_entry(bytes, signing_key_, &entry);
    if (why.empty() && entry.key != item.key) why = "it stands under another key than its own";
    if (!why.empty()) {
      ++t.refused;
      t.reasons.push_back(item.key.substr(0, 16) + ": " + why);
      continue;
    }
    // Those are about this machine: its files, and its time.
    if (entry.kind == CacheKind::kDigests || entry.kind == CacheKind::kChecked || entry.kind == CacheKind::kCost) continue;
    out += bytes;
    ++t.entries;
    t.bytes += bytes.size();
  }
  out += sha256_hex(out);
  const std::string unfinished = path + ".part";
  std::ofstream file(unfinished, std::ios::binary);
  file.write(out.data(), static_cast<std::streamsize>(out.size()));
  file.close();
  if (!file || std::rename(unfinished.c_str(), path.c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::remove(unfinished.c_str());
    throw environment_error("TSR-K001", "cannot write the bundle '" + path + "': " + why);
  }
  return t;
}

Cache::Transfer Cache::verify() {
  Transfer t;
  for (const Item& item : list()) {
    std::string bytes;
    if (!fetch(item.key, &bytes)) continue;  // removed meanwhile
    EntryView entry{};
    std::string why = decode_entry(bytes, signing_key_, &entry);
    if (why.empty() && entry.key != item.key) why = "it stands under another key than its own";
    if (why.empty()) {
      ++t.entries;
      t.bytes += bytes.size();
      continue;
    }
    ++t.refused;
    t.reasons.push_back(item.key.substr(0, 16) + ": " + why);
    if (writable_) store_.call("remove", [&] { return store_.as<tsr_store>().remove(store_.self, item.key.c_str()); });
  }
  return t;
}

Cache::Transfer Cache::import_bundle(const std::string& path) {
  if (!writable_) throw user_error("TSR-K002", "the cache in '" + location_ + "' cannot be written");
  Transfer t;
  const std::string bytes = read_whole(path);
  const std::string why = read_bundle(bytes, [&](std::string_view one) {
    EntryView entry{};
    const std::string refusal = decode_entry(one, signing_key_, &entry);
    if (!refusal.empty()) {
      ++t.refused;
      t.reasons.push_back(refusal);
      return;
    }
    const std::string key(entry.key);
    store_.call("put", [&] { return store_.as<tsr_store>().put(store_.self, key.c_str(), one.data(), one.size()); });
    ++t.entries;
    t.bytes += one.size();
  });
  if (!why.empty()) throw user_error("TSR-K001", "the bundle '" + path + "' is refused: " + why, "export it again");
  return t;
}

}  // namespace tessera::core
