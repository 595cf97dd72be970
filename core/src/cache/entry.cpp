// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.hpp"

#include <algorithm>

#include "cache/hmac.hpp"
#include "plugin/sha256.hpp"

namespace tessera::core {

namespace {

constexpr std::string_view kMagic = "TSRCACHE";
constexpr uint32_t kVersion = 1;
constexpr size_t kHex = 64;
const std::string kUnsigned(kHex, '-');

struct Header {
  uint32_t version = 0, kind = 0;
  std::string_view key, hash, signature;
  uint64_t length = 0;
};

bool read_header(std::string_view bytes, Header* h) {
  ByteReader in(bytes);
  std::string_view magic;
  return in.bytes(kMagic.size(), &magic) && magic == kMagic && in.u32(&h->version) && in.u32(&h->kind) &&
         in.bytes(kHex, &h->key) && in.u64(&h->length) && in.bytes(kHex, &h->hash) && in.bytes(kHex, &h->signature);
}

// Everything but the signature itself; the payload is in it through its hash.
std::string_view signed_part(std::string_view bytes) { return bytes.substr(0, kCacheHeaderSize - kHex); }

}  // namespace

const char* cache_kind_name(CacheKind kind) {
  return kind == CacheKind::kGraph ? "graph" : kind == CacheKind::kProfile ? "profile" : "?";
}

bool is_cache_key(std::string_view key) {
  return key.size() == kHex &&
         std::all_of(key.begin(), key.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string encode_entry(CacheKind kind, std::string_view key, std::string_view payload, std::string_view signing_key) {
  ByteWriter w;
  w.bytes(kMagic);
  w.u32(kVersion);
  w.u32(static_cast<uint32_t>(kind));
  w.bytes(key);
  w.u64(payload.size());
  w.bytes(sha256_hex(payload));
  std::string out = w.take();
  out += signing_key.empty() ? kUnsigned : hmac_sha256_hex(signing_key, out);
  out += payload;
  return out;
}

uint64_t entry_length(std::string_view bytes) {
  Header h;
  if (!read_header(bytes, &h) || h.length > UINT64_MAX - kCacheHeaderSize) return 0;
  return kCacheHeaderSize + h.length;
}

std::string decode_entry(std::string_view bytes, std::string_view signing_key, EntryView* out) {
  Header h;
  if (!read_header(bytes, &h)) return "it is no entry of a cache";
  if (h.version != kVersion)
    return "its format has version " + std::to_string(h.version) + ", this build reads " + std::to_string(kVersion);
  if (!is_cache_key(h.key)) return "its key is malformed";
  const std::string_view payload = bytes.substr(kCacheHeaderSize);
  if (h.length != payload.size())
    return "it holds " + std::to_string(payload.size()) + " bytes, its header says " + std::to_string(h.length);
  const bool has_signature = h.signature != kUnsigned;
  if (!signing_key.empty()) {
    if (!has_signature) return "it is not signed, and cache.key_file asks for signatures";
    if (!equal_in_constant_time(h.signature, hmac_sha256_hex(signing_key, signed_part(bytes))))
      return "its signature is not that of the key in cache.key_file";
  }
  if (h.hash != sha256_hex(payload)) return "its bytes do not have the hash that it states";
  if (std::string_view(cache_kind_name(static_cast<CacheKind>(h.kind))) == "?")
    return "its kind " + std::to_string(h.kind) + " is unknown";
  *out = {static_cast<CacheKind>(h.kind), h.key, payload, has_signature};
  return {};
}

void SectionWriter::add(uint32_t tag, std::string_view bytes) {
  ByteWriter w;
  w.u32(tag);
  w.u64(bytes.size());
  out_ += w.take();
  out_ += bytes;
}

bool read_sections(std::string_view payload, std::vector<Section>* out) {
  ByteReader in(payload);
  while (!in.done()) {
    Section s{};
    uint64_t length = 0;
    if (!in.u32(&s.tag) || !in.u64(&length) || !in.bytes(length, &s.bytes)) return false;
    out->push_back(s);
  }
  return true;
}

}  // namespace tessera::core
