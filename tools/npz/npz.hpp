// SPDX-License-Identifier: Apache-2.0
//
// Named arrays in .npz (and single .npy) files, as numpy writes and reads them.
//
// Read: zip with stored or deflated members, zip64 headers, members `NAME.npy` where NAME may hold '/', npy 1.0, 2.0
// and 3.0, either byte order, C or Fortran order, 0-d. Written: the layout of numpy.savez and savez_compressed. Types
// that numpy lacks travel as raw bytes, `|V1` or `|V2` per element (sub-byte types unpacked, one byte each); whoever
// knows the dtype wanted types them (elements.hpp).
//
// Formats: numpy.lib.format (NEP 1); PKWARE APPNOTE 6.3.
//
// Trust: files are hostile. Every size is checked against the file before memory is taken for it, so that what is
// allocated is at most the array data plus a small multiple of the file (deflate expands at most 1032 times). Members
// may not overlap. All functions are reentrant. Little-endian hosts only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace tessera::npz {

// In memory an array is always little-endian and row-major, whatever the file had. Bools are 0 or 1.
struct Array {
  std::string name;
  std::string descr;            // canonical numpy descr: "<f4", "|i1", "|b1", "|V2"
  std::vector<int64_t> shape;   // empty: 0-d, one element
  std::vector<std::byte> data;  // product(shape) * item_size(descr) bytes
};

// what() is one line: file, member, byte offset, what was found and what was expected. hint() says what to do.
//
//   TSR-N001  the file cannot be opened, read or written
//   TSR-N002  neither an .npz nor an .npy file
//   TSR-N003  damaged or truncated zip structure
//   TSR-N004  a zip feature that numpy does not write: encryption, another compression, several disks
//   TSR-N005  damaged member: CRC or deflate stream
//   TSR-N006  malformed .npy header
//   TSR-N007  an element type that tensors do not have
//   TSR-N008  shape out of range, or not the size of the data
//   TSR-N009  bad or repeated member name
//   TSR-N010  not enough memory
//   TSR-N011  malformed TensorProto
class Error : public std::runtime_error {
 public:
  Error(std::string code, std::string file, std::string member, uint64_t offset, const std::string& message, std::string hint);

  [[nodiscard]] const std::string& code() const noexcept { return code_; }
  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  [[nodiscard]] const std::string& member() const noexcept { return member_; }  // empty: the file as a whole
  // Of the fault: in the member's uncompressed bytes when its content is at fault, in the file when the archive is.
  [[nodiscard]] uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

 private:
  std::string code_, file_, member_, hint_;
  uint64_t offset_;
};

// All arrays in the order of the archive's directory. Of an .npy file the one array; its name is the file's stem (read)
// or empty (read_bytes). Throws Error.
[[nodiscard]] std::vector<Array> read(const std::string& path);
[[nodiscard]] std::vector<Array> read_bytes(std::span<const std::byte> bytes, const std::string& label = "<memory>");

// The tensor of a file that holds one ONNX TensorProto, as the test data of ONNX models (.pb). Its name is that of the tensor,
// or the file's stem when it has none. A dtype that numpy lacks comes as raw bytes. Throws Error.
[[nodiscard]] Array read_tensor_proto(const std::string& path);

// Writes an .npz, or an .npy when the path ends in ".npy" (one array then, its name unused, compress ignored). A
// regular file appears complete or not at all: the bytes go to a temporary file beside it, which is renamed. Throws
// Error; an array whose descr is not canonical or whose data does not fit its shape is TSR-N007 or TSR-N008.
void write(const std::string& path, std::span<const Array> arrays, bool compress = false);

// Bytes of one element of a descr that Array may have; 0 for any other.
[[nodiscard]] size_t item_size(const std::string& descr) noexcept;

}  // namespace tessera::npz
