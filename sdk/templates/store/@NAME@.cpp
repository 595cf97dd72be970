// The store @NAME@: a place for what compilation has cached. This one keeps entries in the process's memory; a place that
// outlives it says in `info` where it is, and whether others than this user can change what it returns (then entries must be
// signed).
#include <tessera/plugin.hpp>

#include <cstring>
#include <ctime>
#include <map>
#include <mutex>

namespace {

namespace t = tessera::sdk;

struct Entry {
  std::string bytes;
  int64_t last_used = 0;
};
struct Store {
  std::mutex mutex;
  std::map<std::string, Entry> entries;  // by key: lower-case hex
};
Store& of(void* self) { return *static_cast<Store*>(self); }

tsr_error* get(void* self, const char* key, void* (*alloc)(void* ctx, size_t), void* ctx, int* found) noexcept {
  return t::guarded([&] {
    const std::lock_guard lock(of(self).mutex);
    const auto it = of(self).entries.find(key);
    *found = it != of(self).entries.end();
    if (!*found) return;
    void* to = alloc(ctx, it->second.bytes.size());
    if (!it->second.bytes.empty()) std::memcpy(to, it->second.bytes.data(), it->second.bytes.size());
    it->second.last_used = std::time(nullptr);
  });
}

// Atomic: who reads the key meanwhile gets the old bytes or the new ones.
tsr_error* put(void* self, const char* key, const void* bytes, size_t length) noexcept {
  return t::guarded([&] {
    Entry entry{std::string(static_cast<const char*>(bytes), length), std::time(nullptr)};
    const std::lock_guard lock(of(self).mutex);
    of(self).entries.insert_or_assign(key, std::move(entry));
  });
}

tsr_error* remove(void* self, const char* key) noexcept {
  return t::guarded([&] {
    const std::lock_guard lock(of(self).mutex);
    of(self).entries.erase(key);
  });
}

tsr_error* list(void* self, void (*each)(void* ctx, const char* key, uint64_t bytes, int64_t last_used_unix),
                void* ctx) noexcept {
  return t::guarded([&] {
    const std::lock_guard lock(of(self).mutex);
    for (const auto& [key, entry] : of(self).entries) each(ctx, key.c_str(), entry.bytes.size(), entry.last_used);
  });
}

tsr_error* info(void*, tsr_store_info* out) noexcept {
  out->location = "memory of the process";
  out->exclusive = 1;
  out->writable = 1;
  return nullptr;
}

}  // namespace

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  static const tsr_store table = [] {
    tsr_store x{};  // map and put_parts stay NULL: entries are read as a whole
    x.struct_size = sizeof x;
    x.get = get;
    x.put = put;
    x.remove = remove;
    x.list = list;
    x.info = info;
    return x;
  }();
  auto store = std::make_shared<Store>();
  plugin.add_raw(TSR_STORE, "@NAME@", &table, store.get());
  plugin.keep(std::move(store));
}
