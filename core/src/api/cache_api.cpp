// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "api/api.hpp"
#include "cache/cache.hpp"
#include "config/json_text.hpp"

namespace tessera::core::api {

namespace {

using Json = nlohmann::ordered_json;

Cache& cache_of(tsr_context* c) {
  const Context& context = *required(c, "context").context;
  Cache* cache = context.cache();
  if (const Setting& off = context.config().setting("force_disable_caches"); off.value.b)
    throw user_error("TSR-K002", "this config keeps no cache: force_disable_caches is on (" + to_text(off.origin) + ")",
                     "leave it off to use one");
  if (!cache)
    throw user_error("TSR-K002", "this config keeps no cache",
                     "load a store (tessera.store.disk) and name its folder: TESSERA_CACHE_DIR=DIR, or disk.path");
  cache->flush();  // what this process is still writing is part of it
  return *cache;
}

Json items_json(const std::vector<Cache::Item>& items) {
  Json out = Json::array();
  for (const Cache::Item& i : items) out.push_back({{"key", i.key}, {"bytes", i.bytes}, {"last_used_unix", i.last_used_unix}});
  return out;
}

Json transfer_json(const Cache& cache, const Cache::Transfer& t) {
  return {{"location", cache.location()},
          {"entries", t.entries},
          {"bytes", t.bytes},
          {"refused", t.refused},
          {"reasons", t.reasons}};
}

template <class F>
tsr_error* answer(char** out, F&& f) noexcept {
  return guarded([&] {
    required(out, "the text to be returned");
    *out = to_c_string(json_text(f()));
  });
}

}  // namespace

void cache_functions(tsr_api& t) {
  t.cache_list = [](tsr_context* c, char** out) noexcept {
    return answer(out, [&] {
      const Cache& cache = cache_of(c);
      const std::vector<Cache::Item> items = cache.list();
      uint64_t total = 0;
      for (const Cache::Item& i : items) total += i.bytes;
      return Json{{"location", cache.location()}, {"bytes", total}, {"entries", items_json(items)}};
    });
  };
  t.cache_prune = [](tsr_context* c, uint64_t max_bytes, char** out) noexcept {
    return answer(out, [&] {
      Cache& cache = cache_of(c);
      return Json{{"location", cache.location()}, {"removed", items_json(cache.prune(max_bytes))}};
    });
  };
  t.cache_verify = [](tsr_context* c, char** out) noexcept {
    return answer(out, [&] {
      Cache& cache = cache_of(c);
      return transfer_json(cache, cache.verify());
    });
  };
  t.cache_flush = [](tsr_context* c) noexcept {
    if (c && c->context->cache()) c->context->cache()->flush();
  };
  t.cache_export = [](tsr_context* c, const char* path, char** out) noexcept {
    return answer(out, [&] {
      Cache& cache = cache_of(c);
      return transfer_json(cache, cache.export_bundle(&required(path, "the path")));
    });
  };
  t.cache_import = [](tsr_context* c, const char* path, char** out) noexcept {
    return answer(out, [&] {
      Cache& cache = cache_of(c);
      return transfer_json(cache, cache.import_bundle(&required(path, "the path")));
    });
  };
}

}  // namespace tessera::core::api
