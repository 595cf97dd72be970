// SPDX-License-Identifier: Apache-2.0
// usage: cache_stress write|check FOLDER SEED
// write: says "ready", then puts and gets entries until it is killed; what it gets must be what somebody put. check: every
// entry of the folder is whole.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "cache/cache.hpp"
#include "log/log.hpp"
#include "plugin/sha256.hpp"
#include "support.hpp"

using namespace tessera::core;

namespace {

// Recognisable from its first 64 characters on, of a length that depends on the writer.
std::string payload_of(const std::string& key, unsigned variant) {
  std::string out = key;
  const std::string block = sha256_hex(key + std::to_string(variant));
  for (unsigned i = 0; i < variant % 700; ++i) out += block;
  return out;
}

bool is_sound(const std::string& key, const std::string& payload) {
  if (!payload.starts_with(key) || payload.size() % 64 != 0) return false;
  for (size_t at = 128; at < payload.size(); at += 64)
    if (payload.compare(at, 64, payload, 64, 64) != 0) return false;
  return true;
}

constexpr unsigned kBlobs = 16;
std::string blob_key(unsigned n) { return sha256_hex("blob " + std::to_string(n)); }
size_t blob_bytes(unsigned n) { return 64 * (1 + 200 * static_cast<size_t>(n)); }

// Whole, whoever wrote it: all of a blob follows from its number.
bool is_sound(unsigned n, const Blob& blob) {
  const std::string block = blob_key(n);
  for (size_t at = 0; at < blob.bytes(); at += block.size())
    if (blob.view().substr(at, block.size()) != block) return false;
  return true;
}

void put_blob(Cache& cache, unsigned n) {
  const auto blob = Blob::allocate(blob_bytes(n));
  const std::string block = blob_key(n);
  for (size_t at = 0; at < blob->bytes(); at += block.size()) std::memcpy(blob->fill() + at, block.data(), block.size());
  cache.put_later(blob_key(n), blob, std::make_shared<CheckedBlobs>());
  cache.flush();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::string said;
  set_log_sink([&](std::string_view lines) { said += lines; });
  const auto context = tessera::test::make_context(argv[2], {}, {}, {"disk.max_bytes=3000000"});
  Cache* cache = context->cache();
  if (!cache) return std::fprintf(stderr, "no cache: %s", said.c_str()), 2;
  if (std::strcmp(argv[1], "check") == 0) {
    size_t sound = 0;
    std::set<std::string> blobs;
    for (unsigned n = 0; n < kBlobs; ++n) {
      blobs.insert(blob_key(n));
      CheckedBlobs checked;  // knows nothing: all bytes are looked at
      if (const auto blob = cache->map(blob_key(n), blob_bytes(n), checked); blob && !is_sound(n, *blob))
        said += "damaged blob";
      if (!said.empty()) return std::fprintf(stderr, "blob %u: %s\n", n, said.c_str()), 1;
    }
    for (const Cache::Item& i : cache->list()) {
      if (blobs.count(i.key)) {
        ++sound;
        continue;
      }
      const auto payload = cache->get(CacheKind::kGraph, i.key);
      if (!payload || !is_sound(i.key, *payload))
        return std::fprintf(stderr, "entry %s is damaged: %s\n", i.key.c_str(), said.c_str()), 1;
      ++sound;
    }
    std::printf("%zu\n", sound);
    return 0;
  }
  std::puts("ready");
  std::fflush(stdout);
  unsigned seed = static_cast<unsigned>(std::atoi(argv[3]));
  for (;;) {
    seed = seed * 1664525 + 1013904223;
    const std::string key = sha256_hex(std::to_string(seed >> 10 & 63));
    if (const auto payload = cache->get(CacheKind::kGraph, key); payload && !is_sound(key, *payload))
      return std::fprintf(stderr, "got a damaged entry %s\n", key.c_str()), 1;
    cache->put(CacheKind::kGraph, key, payload_of(key, seed >> 16));
    const unsigned n = seed >> 20 & (kBlobs - 1);
    CheckedBlobs checked;
    if (const auto blob = cache->map(blob_key(n), blob_bytes(n), checked); blob && !is_sound(n, *blob))
      return std::fprintf(stderr, "mapped a damaged blob %u\n", n), 1;
    put_blob(*cache, n);
    if (!said.empty()) return std::fprintf(stderr, "%s", said.c_str()), 1;  // a refusal or a failed write
  }
}
