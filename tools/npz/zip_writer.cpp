// SPDX-License-Identifier: Apache-2.0
// The zip container, written as Python's zipfile does for numpy.savez: zip64 sizes in every local header, dates of
// 1980, no data descriptors. Section numbers are those of PKWARE's APPNOTE 6.3.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "npz/internal.hpp"

namespace tessera::npz {
namespace {

constexpr uint64_t zip64_limit = 0x7FFFFFFF;  // from here on, as zipfile
constexpr uint16_t version = 45, dos_date = 0x21;

class Record {
 public:
  Record& u16(uint64_t v) { return put(v, 2); }
  Record& u32(uint64_t v) { return put(v, 4); }
  Record& u64(uint64_t v) { return put(v, 8); }
  Record& text(const std::string& s) {
    bytes += s;
    return *this;
  }
  std::string bytes;

 private:
  Record& put(uint64_t v, int n) {
    for (int i = 0; i < n; ++i) bytes += static_cast<char>(v >> (8 * i) & 255);
    return *this;
  }
};

// Whether a text is UTF-8 and not ASCII alone.
bool needs_utf8(const std::string& s) {
  bool wide = false;
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    const size_t n = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    if (n == 0 || i + n > s.size()) return false;
    const auto next = n > 1 ? static_cast<unsigned char>(s[i + 1]) : 0;
    if ((c == 0xe0 && next < 0xa0) || (c == 0xed && next > 0x9f) || (c == 0xf0 && next < 0x90) || (c == 0xf4 && next > 0x8f))
      return false;  // overlong, a surrogate, beyond U+10FFFF (Unicode, table 3-7)
    for (size_t k = 1; k < n; ++k)
      if ((static_cast<unsigned char>(s[i + k]) & 0xc0) != 0x80) return false;
    wide = wide || n > 1;
    i += n;
  }
  return wide;
}

uint16_t flags(const std::string& name) { return needs_utf8(name) ? 0x800 : 0; }  // 4.4.4: bit 11, the name is UTF-8

std::string local_header(const Member& m) {  // 4.3.7
  Record r;
  r.u32(0x04034B50).u16(version).u16(flags(m.name)).u16(m.method).u16(0).u16(dos_date).u32(m.crc);
  r.u32(0xFFFFFFFF).u32(0xFFFFFFFF).u16(m.name.size()).u16(20).text(m.name);
  r.u16(1).u16(16).u64(m.size).u64(m.compressed_size);
  return r.bytes;
}

std::string directory_entry(const Member& m) {  // 4.3.12
  Record extra;
  const bool big = m.size > zip64_limit || m.compressed_size > zip64_limit, far = m.header_offset > zip64_limit;
  if (big) extra.u64(m.size).u64(m.compressed_size);
  if (far) extra.u64(m.header_offset);
  Record r;
  r.u32(0x02014B50).u16(3 << 8 | version).u16(version).u16(flags(m.name)).u16(m.method).u16(0).u16(dos_date).u32(m.crc);
  r.u32(big ? 0xFFFFFFFF : m.compressed_size).u32(big ? 0xFFFFFFFF : m.size);
  r.u16(m.name.size()).u16(extra.bytes.empty() ? 0 : extra.bytes.size() + 4).u16(0).u16(0).u16(0).u32(0600u << 16);
  r.u32(far ? 0xFFFFFFFF : m.header_offset).text(m.name);
  if (!extra.bytes.empty()) r.u16(1).u16(extra.bytes.size()).text(extra.bytes);
  return r.bytes;
}

// Deflates pieces into the sink.
class Deflater {
 public:
  explicit Deflater(FileSink& sink) : sink_(sink), buffer_(256 * 1024) {
    if (deflateInit2(&stream_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
      throw Error("TSR-N010", sink.path(), {}, 0, "no memory for the compressor", "write without compression");
  }
  ~Deflater() { deflateEnd(&stream_); }
  Deflater(const Deflater&) = delete;
  Deflater& operator=(const Deflater&) = delete;

  void put(const void* data, size_t n) {
    const auto* p = static_cast<const unsigned char*>(data);
    while (n > 0) {
      const size_t chunk = std::min<size_t>(n, 1u << 30);
      stream_.next_in = const_cast<unsigned char*>(p);
      stream_.avail_in = static_cast<uInt>(chunk);
      drain(Z_NO_FLUSH);
      p += chunk;
      n -= chunk;
    }
  }
  void finish() { drain(Z_FINISH); }

 private:
  void drain(int flush) {
    do {
      stream_.next_out = buffer_.data();
      stream_.avail_out = static_cast<uInt>(buffer_.size());
      deflate(&stream_, flush);  // cannot fail: the stream is valid and has room
      sink_.write(buffer_.data(), buffer_.size() - stream_.avail_out);
    } while (stream_.avail_out == 0);
  }

  FileSink& sink_;
  std::vector<unsigned char> buffer_;
  z_stream stream_{};
};

}  // namespace

void ZipWriter::add(const std::string& name, const std::string& head, const std::vector<std::byte>& body, bool compress) {
  Member m;
  m.name = name;
  m.method = compress ? 8 : 0;
  m.header_offset = sink_.position();
  m.size = head.size() + body.size();
  m.compressed_size = m.size;
  uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(head.data()), head.size());
  if (!body.empty()) crc = crc32_z(crc, reinterpret_cast<const Bytef*>(body.data()), body.size());
  m.crc = static_cast<uint32_t>(crc);
  const std::string header = local_header(m);
  sink_.write(header.data(), header.size());
  if (compress) {
    const uint64_t start = sink_.position();
    Deflater deflater(sink_);
    deflater.put(head.data(), head.size());
    deflater.put(body.data(), body.size());
    deflater.finish();
    m.compressed_size = sink_.position() - start;
    const std::string patched = local_header(m);
    sink_.patch(m.header_offset, patched.data(), patched.size());
  } else {
    sink_.write(head.data(), head.size());
    sink_.write(body.data(), body.size());
  }
  members_.push_back(std::move(m));
}

void ZipWriter::finish() {
  const uint64_t start = sink_.position();
  for (const Member& m : members_) {
    const std::string entry = directory_entry(m);
    sink_.write(entry.data(), entry.size());
  }
  const uint64_t end = sink_.position(), size = end - start, count = members_.size();
  Record r;
  if (count > 0xFFFF || start > zip64_limit || size > zip64_limit) {
    r.u32(0x06064B50).u64(44).u16(version).u16(version).u32(0).u32(0).u64(count).u64(count).u64(size).u64(start);  // 4.3.14
    r.u32(0x07064B50).u32(0).u64(end).u32(1);                                                                      // 4.3.15
  }
  const uint64_t entries = std::min<uint64_t>(count, 0xFFFF);
  r.u32(0x06054B50).u16(0).u16(0).u16(entries).u16(entries);  // 4.3.16
  r.u32(std::min<uint64_t>(size, 0xFFFFFFFF)).u32(std::min<uint64_t>(start, 0xFFFFFFFF)).u16(0);
  sink_.write(r.bytes.data(), r.bytes.size());
}

// ---------------------------------------------------------------------------------------------------------------- file

FileSink::FileSink(std::string path) : path_(std::move(path)), target_(path_) {
  std::error_code ignored;
  if (const auto real = std::filesystem::canonical(path_, ignored); !ignored) target_ = real.string();  // keep a symbolic link
  struct stat info;
  const bool in_place = ::stat(target_.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
  static std::atomic<unsigned> serial{0};  // two threads may write one path: the last rename wins
  if (!in_place) temporary_ = target_ + ".partial-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
  fd_ = ::open((in_place ? target_ : temporary_).c_str(), O_WRONLY | O_CLOEXEC | (in_place ? 0 : O_CREAT | O_TRUNC), 0666);
  if (fd_ < 0) {
    const int error = errno;
    temporary_.clear();
    fail("open for writing", error);
  }
}

FileSink::~FileSink() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void FileSink::fail(const std::string& doing, int error) const {
  const char* hint = error == ENOSPC                     ? "free some space or write elsewhere"
                     : error == EACCES || error == EROFS ? "choose a place that you may write to"
                     : error == ENOENT                   ? "create the directory first"
                     : error == EISDIR                   ? "name a file, not a directory"
                                                         : "write to a regular file";
  throw Error("TSR-N001", path_, {}, position_, "cannot " + doing + ": " + std::strerror(error), hint);
}

void FileSink::write_at(uint64_t offset, const void* data, size_t n) {
  const char* p = static_cast<const char*>(data);
  while (n > 0) {
    const ssize_t done = ::pwrite(fd_, p, std::min<size_t>(n, 1u << 30), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) fail("write", done < 0 ? errno : EIO);
    p += done;
    n -= static_cast<size_t>(done);
    offset += static_cast<uint64_t>(done);
  }
}

void FileSink::write(const void* data, size_t n) {
  write_at(position_, data, n);
  position_ += n;
}

void FileSink::patch(uint64_t offset, const void* data, size_t n) { write_at(offset, data, n); }

void FileSink::commit() {
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) fail("write", errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("replace the file", errno);
  temporary_.clear();
}

}  // namespace tessera::npz
