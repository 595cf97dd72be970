// SPDX-License-Identifier: Apache-2.0
// What the parts of the npz library share: bytes by offset, the zip container, the npy header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npz/npz.hpp"

namespace tessera::npz {

// Random access to the input. The label is the file's name in messages.
class Source {
 public:
  virtual ~Source() = default;
  [[nodiscard]] virtual uint64_t size() const = 0;
  // Exactly n bytes; [offset, offset + n) lies inside size(). Throws TSR-N001.
  virtual void read_at(uint64_t offset, void* dst, size_t n) = 0;

  std::string label;
};

// Throws TSR-N001.
[[nodiscard]] std::unique_ptr<Source> open_source(const std::string& path);

// The bytes of one .npy, front to back.
class ByteReader {
 public:
  virtual ~ByteReader() = default;
  virtual void read(void* dst, size_t n) = 0;  // exactly n more bytes; the caller stays within size
  virtual void finish() = 0;                   // all of `size` has been read: check what follows it, and the CRC

  std::string label, member;  // for messages
  uint64_t size = 0;          // bytes in all
  uint64_t position = 0;      // bytes read

  [[noreturn]] void fail(const char* code, uint64_t at, const std::string& message, const std::string& hint) const {
    throw Error(code, label, member, at, message, hint);
  }
};

// ----------------------------------------------------------------------------------------------------------------- zip

struct Member {
  std::string name;
  uint64_t header_offset = 0, data_offset = 0;
  uint64_t compressed_size = 0, size = 0;
  uint32_t crc = 0;
  uint16_t method = 0;  // 0 stored, 8 deflated
};

// The archive's directory, checked against the local headers: every member's bytes lie inside the file and overlap no
// other's.
[[nodiscard]] std::vector<Member> read_directory(Source& source);
[[nodiscard]] std::unique_ptr<ByteReader> open_member(Source& source, const Member& member);

// Writes one file; nothing remains of it unless commit() was called.
class FileSink;
class ZipWriter {
 public:
  explicit ZipWriter(FileSink& sink) : sink_(sink) {}
  // One member made of two pieces, head then body.
  void add(const std::string& name, const std::string& head, const std::vector<std::byte>& body, bool compress);
  void finish();  // the directory

 private:
  FileSink& sink_;
  std::vector<Member> members_;
};

class FileSink {
 public:
  explicit FileSink(std::string path);
  ~FileSink();
  FileSink(const FileSink&) = delete;
  FileSink& operator=(const FileSink&) = delete;

  void write(const void* data, size_t n);
  void patch(uint64_t offset, const void* data, size_t n);  // overwrites what was written
  void commit();
  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail(const std::string& doing, int error) const;
  void write_at(uint64_t offset, const void* data, size_t n);

  std::string path_, target_, temporary_;  // temporary_ empty: the target is written in place (a device, a pipe)
  int fd_ = -1;
  uint64_t position_ = 0;
};

// ----------------------------------------------------------------------------------------------------------------- npy

[[nodiscard]] Array read_npy(ByteReader& in);
// Checks the array and gives the header in front of its data. `file` is for messages.
[[nodiscard]] std::string npy_header(const Array& array, const std::string& file);

// -------------------------------------------------------------------------------------------------------------- little

[[nodiscard]] std::string in_quotes(const std::string& text);  // 'text', what is not printable as \xNN, long text shortened
// a * b, or false when it does not fit.
[[nodiscard]] inline bool multiply(uint64_t a, uint64_t b, uint64_t& out) { return !__builtin_mul_overflow(a, b, &out); }

inline constexpr char save_again_hint[] = "the file is damaged or was cut short: copy or save it again";

}  // namespace tessera::npz
