// SPDX-License-Identifier: Apache-2.0
// The bytes of one cached entry, as every store keeps them and as bundles carry them. Little-endian:
//   "TSRCACHE" | u32 version | u32 kind | key: 64 hex digits | u64 length | SHA-256 of the payload: 64 hex digits
//   | HMAC-SHA256 of everything else: 64 hex digits, or 64 '-' when it is not signed | payload
// Entries are code: nothing of a payload is looked at before all of this has been checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::core {

// digests: of the constants in one file. blob: memory that is mapped. checked: which blobs of a graph were found sound. cost:
// what one kernel takes on one device. docs/caches.md.
enum class CacheKind : uint32_t { kGraph = 1, kProfile = 2, kDigests = 3, kBlob = 4, kChecked = 5, kCost = 6 };
const char* cache_kind_name(CacheKind kind);  // "graph", "profile", ..; "?" for another number

inline constexpr size_t kCacheHeaderSize = 8 + 4 + 4 + 64 + 8 + 64 + 64;
// A blob's memory begins here, so that a mapping of the entry has it on a page of its own; between the header and it are zeros,
// and the hash in the header is its content_digest().
inline constexpr size_t kBlobOffset = 4096;

bool is_cache_key(std::string_view key);  // 64 lower-case hex digits

// `signing_key` empty: not signed.
std::string encode_entry(CacheKind kind, std::string_view key, std::string_view payload, std::string_view signing_key);

struct EntryView {  // borrows the bytes
  CacheKind kind;
  std::string_view key, payload;
  bool is_signed;
};
// "" and *out, or why the bytes are refused. With a signing key, only entries that it signed are accepted.
std::string decode_entry(std::string_view bytes, std::string_view signing_key, EntryView* out);
// The first kBlobOffset bytes of a blob's entry; `digest`: content_digest() of its memory.
std::string encode_blob_header(std::string_view key, size_t bytes, const std::string& digest, std::string_view signing_key);
// As decode_entry, without looking at the memory: "" and what its digest should be, or why it is refused.
std::string decode_blob_header(std::string_view entry, std::string_view key, std::string_view signing_key, std::string* digest);
// The length of the entry that begins here, by its header alone; 0: there is no header of an entry.
uint64_t entry_length(std::string_view bytes);

// Payloads are lists of sections.
class SectionWriter {
 public:
  void add(uint32_t tag, std::string_view bytes);
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};
struct Section {
  uint32_t tag;
  std::string_view bytes;
};
bool read_sections(std::string_view payload, std::vector<Section>* out);  // false: malformed

// Bounds-checked little-endian numbers and strings ("u32 length, bytes").
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  bool u8(uint8_t* v) { return number(v); }
  bool u32(uint32_t* v) { return number(v); }
  bool u64(uint64_t* v) { return number(v); }
  bool bytes(uint64_t n, std::string_view* v) {
    if (n > rest_.size()) return false;
    *v = rest_.substr(0, static_cast<size_t>(n));
    rest_.remove_prefix(static_cast<size_t>(n));
    return true;
  }
  bool text(std::string* v) {
    uint32_t n = 0;
    std::string_view s;
    if (!u32(&n) || !bytes(n, &s)) return false;
    *v = s;
    return true;
  }
  bool done() const { return rest_.empty(); }

 private:
  template <class T>
  bool number(T* v) {
    if (rest_.size() < sizeof(T)) return false;
    *v = 0;
    for (size_t i = 0; i < sizeof(T); ++i)
      *v |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(rest_[i])) << (8 * i));
    rest_.remove_prefix(sizeof(T));
    return true;
  }
  std::string_view rest_;
};
class ByteWriter {
 public:
  void u8(uint8_t v) { number(v); }
  void u32(uint32_t v) { number(v); }
  void u64(uint64_t v) { number(v); }
  void bytes(std::string_view v) { out_ += v; }
  void text(std::string_view v) {
    u32(static_cast<uint32_t>(v.size()));
    out_ += v;
  }
  std::string take() { return std::move(out_); }

 private:
  template <class T>
  void number(T v) {
    for (size_t i = 0; i < sizeof(T); ++i) out_ += static_cast<char>(static_cast<unsigned char>(v >> (8 * i)));
  }
  std::string out_;
};

}  // namespace tessera::core
