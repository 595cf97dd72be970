// SPDX-License-Identifier: Apache-2.0
#include "npz/npz.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <new>
#include <set>

#include "npz/internal.hpp"

namespace tessera::npz {
namespace {

std::string describe(const std::string& file, const std::string& member, uint64_t offset, const std::string& message) {
  return file + ": " + (member.empty() ? "" : "member " + in_quotes(member) + ": ") + "byte " + std::to_string(offset) + ": " +
         message;
}

class FileSource final : public Source {
 public:
  explicit FileSource(const std::string& path) {
    label = path;
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block the open
    if (fd_ < 0) fail(std::string("cannot open: ") + std::strerror(errno), "check the path and its permissions");
    struct stat info;
    if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
      ::close(fd_);
      fail("not a regular file", "name an .npz or .npy file; a pipe must be saved to a file first");
    }
    size_ = static_cast<uint64_t>(info.st_size);
  }
  ~FileSource() override { ::close(fd_); }

  [[nodiscard]] uint64_t size() const override { return size_; }
  void read_at(uint64_t offset, void* dst, size_t n) override {
    auto* p = static_cast<char*>(dst);
    while (n > 0) {
      const ssize_t got = ::pread(fd_, p, std::min<size_t>(n, 1u << 30), static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail(std::string("cannot read: ") + std::strerror(errno), "check the disk or the network share", offset);
      if (got == 0) fail("the file became shorter while it was read", "let its writer finish first", offset);
      p += got;
      n -= static_cast<size_t>(got);
      offset += static_cast<uint64_t>(got);
    }
  }

 private:
  [[noreturn]] void fail(const std::string& message, const std::string& hint, uint64_t at = 0) const {
    throw Error("TSR-N001", label, {}, at, message, hint);
  }
  int fd_ = -1;
  uint64_t size_ = 0;
};

class SpanSource final : public Source {
 public:
  SpanSource(std::span<const std::byte> bytes, const std::string& name) : bytes_(bytes) { label = name; }
  [[nodiscard]] uint64_t size() const override { return bytes_.size(); }
  void read_at(uint64_t offset, void* dst, size_t n) override { std::memcpy(dst, bytes_.data() + offset, n); }

 private:
  std::span<const std::byte> bytes_;
};

// A bare .npy: the file is the member.
class WholeReader final : public ByteReader {
 public:
  explicit WholeReader(Source& source) : source_(source) {
    label = source.label;
    size = source.size();
  }
  void read(void* dst, size_t n) override {
    if (n) source_.read_at(position, dst, n);
    position += n;
  }
  void finish() override {}

 private:
  Source& source_;
};

std::vector<Array> read_all(Source& source, const std::string& stem) {
  char magic[6] = {};
  source.read_at(0, magic, static_cast<size_t>(std::min<uint64_t>(source.size(), sizeof magic)));
  std::vector<Array> arrays;
  if (std::memcmp(magic, "\x93NUMPY", 6) == 0) {
    WholeReader in(source);
    arrays.push_back(read_npy(in));
    arrays.back().name = stem;
    return arrays;
  }
  const bool zip = std::memcmp(magic, "PK\x03\x04", 4) == 0 || std::memcmp(magic, "PK\x05\x06", 4) == 0;
  if (!zip)
    throw Error("TSR-N002", source.label, {}, 0,
                source.size() == 0 ? "the file is empty; expected an .npz or .npy file"
                                   : "it begins neither as an .npz (PK\\x03\\x04) nor as an .npy (\\x93NUMPY) file",
                "write the file with numpy.savez or numpy.save");
  std::set<std::string> names;
  for (const Member& m : read_directory(source)) {
    if (m.size == 0 && m.name.ends_with('/')) continue;  // a directory entry of a file made by a zip tool
    const auto refuse = [&](const std::string& message, const std::string& hint) {
      throw Error("TSR-N009", source.label, m.name, m.header_offset, message, hint);
    };
    if (m.name.size() <= 4 || !m.name.ends_with(".npy"))
      refuse("expected a member named NAME.npy", "write the file with numpy.savez");
    if (m.name.find('\0') != std::string::npos) refuse("a NUL in the member's name", "rename the array");
    if (!names.insert(m.name).second) refuse("the name occurs twice", "give every array a name of its own");
    const auto in = open_member(source, m);
    arrays.push_back(read_npy(*in));
    arrays.back().name = m.name.substr(0, m.name.size() - 4);
  }
  return arrays;
}

std::vector<Array> read_source(Source& source, const std::string& stem) {
  try {
    return read_all(source, stem);
  } catch (const std::bad_alloc&) {  // outside of the array data: a directory of gigabytes
    throw Error("TSR-N010", source.label, {}, 0, "no memory to read the file", "use a machine with more memory");
  }
}

}  // namespace

Error::Error(std::string code, std::string file, std::string member, uint64_t offset, const std::string& message,
             std::string hint)
    : std::runtime_error(describe(file, member, offset, message)),
      code_(std::move(code)),
      file_(std::move(file)),
      member_(std::move(member)),
      hint_(std::move(hint)),
      offset_(offset) {}

std::string in_quotes(const std::string& text) {
  constexpr size_t most = 120;
  std::string out = "'";
  for (const unsigned char c : text.substr(0, most)) {
    if (c >= 32 && c != 127) {
      out += static_cast<char>(c);
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
      out += escaped;
    }
  }
  return out + (text.size() > most ? "...'" : "'");
}

std::unique_ptr<Source> open_source(const std::string& path) { return std::make_unique<FileSource>(path); }

std::vector<Array> read(const std::string& path) {
  FileSource source(path);
  return read_source(source, std::filesystem::path(path).stem().string());
}

std::vector<Array> read_bytes(std::span<const std::byte> bytes, const std::string& label) {
  SpanSource source(bytes, label);
  return read_source(source, {});
}

void write(const std::string& path, std::span<const Array> arrays, bool compress) {
  const bool npy = path.ends_with(".npy");
  if (npy && arrays.size() != 1)
    throw Error("TSR-N009", path, {}, 0, std::to_string(arrays.size()) + " arrays for an .npy file; expected one",
                "name the file .npz");
  std::set<std::string> names;
  std::vector<std::string> headers;
  for (const Array& a : arrays) {
    headers.push_back(npy_header(a, path));
    if (npy) continue;
    const char* wrong = a.name.empty()                           ? "an array without a name"
                        : a.name.find('\0') != std::string::npos ? "a NUL in the name"
                        : a.name.size() > 65000                  ? "a name of more than 65,000 bytes"
                        : !names.insert(a.name).second           ? "the name occurs twice"
                                                                 : nullptr;
    if (wrong) throw Error("TSR-N009", path, a.name, 0, wrong, "give every array a name of its own");
  }
  FileSink sink(path);
  if (npy) {
    sink.write(headers[0].data(), headers[0].size());
    sink.write(arrays[0].data.data(), arrays[0].data.size());
  } else {
    ZipWriter zip(sink);
    for (size_t i = 0; i < arrays.size(); ++i) zip.add(arrays[i].name + ".npy", headers[i], arrays[i].data, compress);
    zip.finish();
  }
  sink.commit();
}

}  // namespace tessera::npz
