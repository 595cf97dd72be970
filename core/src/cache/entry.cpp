// SPDX-License-Identifier: Apache-2.0
#include "cache/entry.hpp"

#include <algorithm>

#include "cache/digest.hpp"
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
  switch (kind) {
    case CacheKind::kGraph: return "graph";
    case CacheKind::kProfile: return "profile";
    case CacheKind::kDigests: return "digests";
    case CacheKind::kBlob: return "blob";
    case CacheKind::kChecked: return "checked";
    case CacheKind::kCost: return "cost";
  }
  return "?";
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

namespace {

// Everything but the hash of the payload.
std::string check_header(std::string_view bytes, std::string_view signing_key, Header* out) {
  Header& h = *out;
  if (!read_header(bytes, &h)) return "it is no entry of a cache";
  if (h.version != kVersion)
    return "its format has version " + std::to_string(h.version) + ", this build reads " + std::to_string(kVersion);
  if (!is_cache_key(h.key)) return "its key is malformed";
  const std::string_view payload = bytes.substr(kCacheHeaderSize);
  if (h.length != payload.size())
    return "it holds " + std::to_string(payload.size()) + " bytes, its header says " + std::to_string(h.length);
  if (!signing_key.empty()) {
    if (h.signature == kUnsigned) return "it is not signed, and cache.key_file asks for signatures";
    if (!equal_in_constant_time(h.signature, hmac_sha256_hex(signing_key, signed_part(bytes))))
      return "its signature is not that of the key in cache.key_file";
  }
  if (std::string_view(cache_kind_name(static_cast<CacheKind>(h.kind))) == "?")
    return "its kind " + std::to_string(h.kind) + " is unknown";
  return {};
}

constexpr const char* kDamaged = "its bytes do not have the hash that it states";
constexpr const char* kNoBlob = "it is no blob";

bool has_blob(std::string_view bytes, const Header& h) {
  if (static_cast<CacheKind>(h.kind) != CacheKind::kBlob || bytes.size() < kBlobOffset) return false;
  const std::string_view between = bytes.substr(kCacheHeaderSize, kBlobOffset - kCacheHeaderSize);
  return between.find_first_not_of('\0') == std::string_view::npos;
}

}  // namespace

std::string decode_entry(std::string_view bytes, std::string_view signing_key, EntryView* out) {
  Header h;
  if (std::string why = check_header(bytes, signing_key, &h); !why.empty()) return why;
  const auto kind = static_cast<CacheKind>(h.kind);
  std::string_view payload = bytes.substr(kCacheHeaderSize);
  if (kind == CacheKind::kBlob) {
    if (!has_blob(bytes, h)) return kNoBlob;
    payload = bytes.substr(kBlobOffset);
    if (h.hash != content_digest(payload, true)) return kDamaged;
  } else if (h.hash != sha256_hex(payload)) {
    return kDamaged;
  }
  *out = {kind, h.key, payload, h.signature != kUnsigned};
  return {};
}

std::string encode_blob_header(std::string_view key, size_t bytes, const std::string& digest, std::string_view signing_key) {
  ByteWriter w;
  w.bytes(kMagic);
  w.u32(kVersion);
  w.u32(static_cast<uint32_t>(CacheKind::kBlob));
  w.bytes(key);
  w.u64(kBlobOffset - kCacheHeaderSize + bytes);
  w.bytes(digest);
  std::string out = w.take();
  out += signing_key.empty() ? kUnsigned : hmac_sha256_hex(signing_key, out);
  out.resize(kBlobOffset);
  return out;
}

std::string decode_blob_header(std::string_view entry, std::string_view key, std::string_view signing_key,
                               std::string* digest) {
  Header h;
  if (std::string why = check_header(entry, signing_key, &h); !why.empty()) return why;
  if (!has_blob(entry, h)) return kNoBlob;
  if (h.key != key) return "it stands under another key than its own";
  *digest = h.hash;
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
