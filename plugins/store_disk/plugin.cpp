// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <tessera/plugin.hpp>

#include "disk_store.hpp"

namespace tessera::store {

namespace {

struct Instance {
  explicit Instance(std::string path, uint64_t max_bytes) : store(std::move(path), max_bytes) {}
  DiskStore store;
  std::string why;  // of the last info()
};

DiskStore& of(void* self) { return static_cast<Instance*>(self)->store; }

tsr_error* info(void* self, tsr_store_info* out) noexcept {
  return sdk::guarded([&] {
    auto& instance = *static_cast<Instance*>(self);
    const DiskStore::Info i = instance.store.info();
    instance.why = i.why;
    out->location = instance.store.path().c_str();
    out->exclusive = i.exclusive;
    out->writable = i.writable;
    out->why = instance.why.c_str();
  });
}

tsr_error* get(void* self, const char* key, void* (*alloc)(void*, size_t), void* ctx, int* found) noexcept {
  return sdk::guarded([&] { *found = of(self).get(key, [&](size_t n) { return alloc(ctx, n); }) ? 1 : 0; });
}

tsr_error* put(void* self, const char* key, const void* bytes, size_t length) noexcept {
  const tsr_part whole{bytes, length};
  return sdk::guarded([&] { of(self).put(key, {&whole, 1}); });
}

tsr_error* put_parts(void* self, const char* key, const tsr_part* parts, size_t count) noexcept {
  return sdk::guarded([&] { of(self).put(key, {parts, count}); });
}

tsr_error* map(void* self, const char* key, tsr_mapping* out, int* found) noexcept {
  return sdk::guarded([&] {
    auto mapping = std::make_unique<DiskStore::Mapping>();
    *found = of(self).map(key, mapping.get()) ? 1 : 0;
    if (!*found) return;
    out->bytes = mapping->bytes;
    out->length = mapping->length;
    std::copy(std::begin(mapping->identity), std::end(mapping->identity), out->identity);
    out->release = [](void* ctx) noexcept {
      const std::unique_ptr<DiskStore::Mapping> m(static_cast<DiskStore::Mapping*>(ctx));
      DiskStore::unmap(m->bytes, m->length);
    };
    out->ctx = mapping.release();
  });
}

tsr_error* remove(void* self, const char* key) noexcept {
  return sdk::guarded([&] { of(self).remove(key); });
}

tsr_error* list(void* self, void (*each)(void*, const char*, uint64_t, int64_t), void* ctx) noexcept {
  return sdk::guarded([&] {
    of(self).list([&](const std::string& key, uint64_t bytes, int64_t used) { each(ctx, key.c_str(), bytes, used); });
  });
}

const tsr_store kTable = {sizeof(tsr_store), get, put, remove, list, info, map, put_parts};

}  // namespace

}  // namespace tessera::store

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  using tessera::store::Instance;
  const char* dir = std::getenv("TESSERA_CACHE_DIR");
  const std::string path = dir && *dir ? dir : std::string(plugin.options.get_string("path", ""));
  auto instance = std::make_shared<Instance>(path, static_cast<uint64_t>(plugin.options.get_int("max_bytes", 0)));
  plugin.add_raw(TSR_STORE, "disk", &tessera::store::kTable, instance.get());
  plugin.keep(instance);
}
