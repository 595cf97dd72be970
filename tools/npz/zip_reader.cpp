// SPDX-License-Identifier: Apache-2.0
// The zip container, read: directory and members. Section numbers are those of PKWARE's APPNOTE 6.3.
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "npz/internal.hpp"

namespace tessera::npz {
namespace {

uint64_t little(const unsigned char* p, int bytes) {
  uint64_t v = 0;
  for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
  return v;
}
uint16_t u16(const unsigned char* p) { return static_cast<uint16_t>(little(p, 2)); }
uint32_t u32(const unsigned char* p) { return static_cast<uint32_t>(little(p, 4)); }
uint64_t u64(const unsigned char* p) { return little(p, 8); }

constexpr uint32_t local_signature = 0x04034B50, entry_signature = 0x02014B50, end_signature = 0x06054B50,
                   end64_signature = 0x06064B50, locator_signature = 0x07064B50;
constexpr size_t local_size = 30, entry_size = 46, end_size = 22, end64_size = 56, locator_size = 20;
constexpr uint64_t max_expansion = 1032;  // deflate: 258 bytes from 2 bits (zlib technical notes)

constexpr char numpy_hint[] = "write the file with numpy.savez or numpy.savez_compressed";

struct Directory {
  uint64_t offset = 0, size = 0, entries = 0;
};

class DirectoryReader {
 public:
  explicit DirectoryReader(Source& source) : source_(source) {}

  std::vector<Member> read() {
    const Directory directory = locate();
    std::vector<unsigned char> bytes(directory.size);
    if (!bytes.empty()) source_.read_at(directory.offset, bytes.data(), bytes.size());
    std::vector<Member> members;
    size_t at = 0;
    for (uint64_t i = 0; i < directory.entries; ++i) at += entry(bytes, at, directory.offset, members);
    if (at != bytes.size()) damaged(directory.offset + at, "the directory has bytes after its last entry");
    for (Member& m : members) check_local(m, directory.offset);
    check_overlap(members);
    return members;
  }

 private:
  [[noreturn]] void damaged(uint64_t at, const std::string& message, const std::string& member = {}) const {
    throw Error("TSR-N003", source_.label, member, at, message, save_again_hint);
  }
  [[noreturn]] void unsupported(uint64_t at, const std::string& message, const std::string& member = {}) const {
    throw Error("TSR-N004", source_.label, member, at, message, numpy_hint);
  }

  // 4.3.16, 4.3.15, 4.3.14: from the end of the file backwards.
  Directory locate() {
    const uint64_t size = source_.size();
    const size_t tail_size = static_cast<size_t>(std::min<uint64_t>(size, end_size + 65535));
    std::vector<unsigned char> tail(tail_size);
    if (tail_size) source_.read_at(size - tail_size, tail.data(), tail_size);
    size_t at = tail_size;
    bool found = false;
    for (size_t i = tail_size < end_size ? 0 : tail_size - end_size + 1; i-- > 0 && !found;)
      if (u32(&tail[i]) == end_signature && i + end_size + u16(&tail[i + 20]) == tail_size) {
        at = i;
        found = true;
      }
    if (!found) damaged(size, "no end-of-directory record; expected one at the end of the file");
    const unsigned char* p = &tail[at];
    const uint64_t end = size - tail_size + at;
    if (u16(p + 4) != 0 || u16(p + 6) != 0) unsupported(end, "an archive of several disks");
    if (u16(p + 8) != u16(p + 10)) damaged(end + 8, "two different numbers of entries in the end-of-directory record");
    Directory d{u32(p + 16), u32(p + 12), u16(p + 10)};
    uint64_t limit = end;
    if (at >= locator_size && u32(p - locator_size) == locator_signature) limit = locate64(p - locator_size, end, d);
    if (d.offset > limit || d.size != limit - d.offset)
      damaged(end, "the directory is said to be " + std::to_string(d.size) + " bytes at " + std::to_string(d.offset) +
                       "; expected it to end at " + std::to_string(limit));
    if (d.entries > d.size / entry_size)
      damaged(end, std::to_string(d.entries) + " entries are claimed in a directory of " + std::to_string(d.size) + " bytes");
    return d;
  }

  uint64_t locate64(const unsigned char* locator, uint64_t end, Directory& d) {
    const uint64_t at = u64(locator + 8), locator_at = end - locator_size;
    if (u32(locator + 4) != 0 || u32(locator + 16) > 1) unsupported(locator_at, "an archive of several disks");
    if (at > locator_at || locator_at - at < end64_size) damaged(locator_at, "the zip64 locator points outside of the file");
    unsigned char p[end64_size];
    source_.read_at(at, p, sizeof p);
    if (u32(p) != end64_signature || u64(p + 4) != locator_at - at - 12) damaged(at, "no zip64 end-of-directory record");
    if (u32(p + 16) != 0 || u32(p + 20) != 0) unsupported(at, "an archive of several disks");
    if (u64(p + 24) != u64(p + 32)) damaged(at + 24, "two different numbers of entries in the zip64 record");
    d = {u64(p + 48), u64(p + 40), u64(p + 32)};
    return at;
  }

  // 4.3.12. Gives the entry's length.
  size_t entry(const std::vector<unsigned char>& bytes, size_t at, uint64_t base, std::vector<Member>& members) {
    if (bytes.size() - at < entry_size || u32(&bytes[at]) != entry_signature)
      damaged(base + at, "found no directory entry where one is expected");
    const unsigned char* p = &bytes[at];
    const size_t name = u16(p + 28), extra = u16(p + 30), comment = u16(p + 32);
    if (bytes.size() - at - entry_size < name + extra + comment)
      damaged(base + at, "a directory entry runs past the directory");
    Member m;
    m.name.assign(reinterpret_cast<const char*>(p + entry_size), name);
    const uint64_t place = base + at;
    if (u16(p + 8) & 0x2041) unsupported(place + 8, "an encrypted member", m.name);
    if (u16(p + 8) & 0x0020) unsupported(place + 8, "a member of patch data", m.name);
    m.method = u16(p + 10);
    if (m.method != 0 && m.method != 8)
      unsupported(place + 10, "compression method " + std::to_string(m.method) + "; expected 0 (stored) or 8 (deflated)",
                  m.name);
    m.crc = u32(p + 16);
    m.compressed_size = u32(p + 20);
    m.size = u32(p + 24);
    m.header_offset = u32(p + 42);
    if (u16(p + 34) != 0) unsupported(place + 34, "an archive of several disks", m.name);
    zip64_extra(p + entry_size + name, extra, place, m);
    if (m.method == 0 && m.size != m.compressed_size) damaged(place + 20, "a stored member with two different sizes", m.name);
    if (m.method == 8 && m.size / max_expansion > m.compressed_size)
      damaged(place + 24, std::to_string(m.compressed_size) + " deflated bytes cannot become " + std::to_string(m.size),
              m.name);
    members.push_back(std::move(m));
    return entry_size + name + extra + comment;
  }

  // 4.5.3: the fields that are all ones stand here, in this order.
  void zip64_extra(const unsigned char* p, size_t n, uint64_t place, Member& m) {
    constexpr uint32_t elsewhere = 0xFFFFFFFF;
    uint64_t* const wanted[] = {&m.size, &m.compressed_size, &m.header_offset};
    bool missing = m.size == elsewhere || m.compressed_size == elsewhere || m.header_offset == elsewhere;
    while (n >= 4) {
      const size_t length = u16(p + 2);
      if (length > n - 4) damaged(place, "an extra field runs past its entry", m.name);
      if (u16(p) == 1 && missing) {
        size_t used = 4;
        for (uint64_t* field : wanted) {
          if (*field != elsewhere) continue;
          if (used + 8 > length + 4) damaged(place, "the zip64 extra field is too short", m.name);
          *field = u64(p + used);
          used += 8;
        }
        missing = false;
      }
      p += 4 + length;
      n -= 4 + length;
    }
    // Without a zip64 field, all ones are plain numbers: sizes that the checks against the file settle.
  }

  // 4.3.7: where the data begins.
  void check_local(Member& m, uint64_t limit) {
    const uint64_t at = m.header_offset;
    if (at > limit || limit - at < local_size) damaged(at, "the directory points outside of the members", m.name);
    unsigned char p[local_size];
    source_.read_at(at, p, sizeof p);
    if (u32(p) != local_signature) damaged(at, "found no member where the directory points", m.name);
    const size_t name = u16(p + 26), extra = u16(p + 28);
    if (limit - at - local_size < name + extra || m.compressed_size > limit - at - local_size - name - extra)
      damaged(at, "the member claims " + std::to_string(m.compressed_size) + " bytes, more than the file has for it", m.name);
    std::string local_name(name, '\0');
    if (name) source_.read_at(at + local_size, local_name.data(), name);
    if (local_name != m.name || u16(p + 8) != m.method)
      damaged(at,
              "the member's own header names " + in_quotes(local_name) + " and method " + std::to_string(u16(p + 8)) +
                  "; expected what the directory says",
              m.name);
    m.data_offset = at + local_size + name + extra;
  }

  // Overlapping members let a small file claim any amount (Fifield 2019, "A better zip bomb").
  void check_overlap(const std::vector<Member>& members) const {
    std::vector<const Member*> order;
    for (const Member& m : members) order.push_back(&m);
    std::ranges::sort(order, {}, &Member::header_offset);
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i - 1]->data_offset + order[i - 1]->compressed_size > order[i]->header_offset)
        damaged(order[i]->header_offset, "the member overlaps " + in_quotes(order[i - 1]->name), order[i]->name);
  }

  Source& source_;
};

class MemberReader : public ByteReader {
 public:
  MemberReader(Source& source, const Member& m) : source_(source), m_(m) {
    label = source.label;
    member = m.name;
    size = m.size;
    crc_ = static_cast<uint32_t>(crc32_z(0, nullptr, 0));
  }

 protected:
  [[noreturn]] void damaged(const std::string& message) const { fail("TSR-N005", position, message, save_again_hint); }
  void count(const void* data, size_t n) {
    if (n == 0) return;  // zlib takes a null pointer as "start over"
    crc_ = static_cast<uint32_t>(crc32_z(crc_, static_cast<const Bytef*>(data), n));
    position += n;
  }
  void check_crc() const {
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    return;  // see CMakeLists.txt
#endif
    if (crc_ == m_.crc) return;
    char text[64];
    std::snprintf(text, sizeof text, "CRC-32 is %08x, expected %08x", crc_, m_.crc);
    damaged(text);
  }

  Source& source_;
  const Member m_;
  uint32_t crc_;
};

class StoredReader final : public MemberReader {
 public:
  using MemberReader::MemberReader;
  void read(void* dst, size_t n) override {
    if (n) source_.read_at(m_.data_offset + position, dst, n);
    count(dst, n);
  }
  void finish() override { check_crc(); }
};

class DeflatedReader final : public MemberReader {
 public:
  DeflatedReader(Source& source, const Member& m) : MemberReader(source, m), buffer_(64 * 1024) {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK)
      fail("TSR-N010", 0, "no memory for the decompressor", "use a machine with more memory");
  }
  ~DeflatedReader() override { inflateEnd(&stream_); }

  void read(void* dst, size_t n) override {
    auto* out = static_cast<unsigned char*>(dst);
    while (n > 0) {
      const size_t got = inflate_some(out, std::min<size_t>(n, 1u << 30));
      if (got == 0) damaged("the deflate stream ends early; expected " + std::to_string(size) + " bytes");
      count(out, got);
      out += got;
      n -= got;
    }
  }
  void finish() override {
    unsigned char extra;
    if (!ended_ && inflate_some(&extra, 1) != 0)
      damaged("the deflate stream goes on; expected " + std::to_string(size) + " bytes");
    if (!ended_ || stream_.avail_in != 0 || consumed_ != m_.compressed_size)
      damaged("the deflate stream does not end where the member does");
    check_crc();
  }

 private:
  // Up to n bytes; 0 at the end of the stream.
  size_t inflate_some(unsigned char* out, size_t n) {
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(n);
    while (!ended_ && stream_.avail_out == n) {
      if (stream_.avail_in == 0 && consumed_ < m_.compressed_size) {
        const size_t chunk = static_cast<size_t>(std::min<uint64_t>(buffer_.size(), m_.compressed_size - consumed_));
        source_.read_at(m_.data_offset + consumed_, buffer_.data(), chunk);
        consumed_ += chunk;
        stream_.next_in = buffer_.data();
        stream_.avail_in = static_cast<uInt>(chunk);
      }
      const int rc = inflate(&stream_, Z_NO_FLUSH);
      if (rc == Z_STREAM_END)
        ended_ = true;
      else if (rc == Z_BUF_ERROR && stream_.avail_in == 0 && consumed_ == m_.compressed_size)
        break;
      else if (rc == Z_MEM_ERROR)
        fail("TSR-N010", position, "no memory for the decompressor", "use a machine with more memory");
      else if (rc != Z_OK && rc != Z_BUF_ERROR)
        damaged(std::string("damaged deflate stream: ") + (stream_.msg ? stream_.msg : "unknown error"));
    }
    return n - stream_.avail_out;
  }

  std::vector<unsigned char> buffer_;
  z_stream stream_{};
  uint64_t consumed_ = 0;  // compressed bytes taken from the source
  bool ended_ = false;
};

}  // namespace

std::vector<Member> read_directory(Source& source) { return DirectoryReader(source).read(); }

std::unique_ptr<ByteReader> open_member(Source& source, const Member& member) {
  if (member.method == 0) return std::make_unique<StoredReader>(source, member);
  return std::make_unique<DeflatedReader>(source, member);
}

}  // namespace tessera::npz
