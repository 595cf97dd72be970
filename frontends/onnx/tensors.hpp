// SPDX-License-Identifier: Apache-2.0
// Data of tensors: where it lies in a mapped file, aligned to its elements, it stays there; else it is copied or decoded, once,
// when a constant is made of it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model.hpp"
#include "tessera/plugin.hpp"

namespace tessera::onnx {

tsr_dtype dtype_of(DataType type);  // TSR_DTYPE_INVALID: none, such as strings
std::string type_name(DataType type);

struct HostTensor {  // dense row-major host memory
  tsr_dtype dtype = TSR_DTYPE_INVALID;
  std::vector<int64_t> sizes;
  const void* data = nullptr;
  size_t bytes = 0;
  [[nodiscard]] int64_t elements() const;
};

// A file that stays mapped, read-only. Its pages come into memory as they are read.
class MappedFile {
 public:
  // Null when the file cannot be opened or mapped; then *why says so.
  static std::shared_ptr<MappedFile> open(const std::string& path, std::string* why);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  [[nodiscard]] std::string_view bytes() const { return {data_, length_}; }
  void forget(std::string_view part) const;  // its pages are clean: they may leave memory
  // Tells the host that `copy`, or the mapping where it is null, holds these bytes of the file.
  void name_source(sdk::Graph g, std::string_view part, const void* copy = nullptr) const;

 private:
  MappedFile(const char* data, size_t length, int fd) : data_(data), length_(length), fd_(fd) {}
  const char* data_;
  size_t length_;
  int fd_;
};

class Tensors {
 public:
  // `path`: the model's file, for external data beside it and for messages. `file`: its mapping, or null when the model's bytes
  // are borrowed for the import alone.
  Tensors(sdk::Graph graph, std::string path, std::shared_ptr<MappedFile> file);

  // Dtype and sizes, checked; no data is touched. Throws kType, kTensor. `what`: "initializer 'w'".
  HostTensor declare(const TensorProto& t, const std::string& what) const;
  // With the data, which lives as long as the graph does and is aligned to its elements. Throws kTensor, kExternal too.
  HostTensor load(const TensorProto& t, const std::string& what);
  // `bytes` of new memory that lives as long as the graph does, 64-byte aligned.
  void* allocate(size_t bytes);

 private:
  struct View {
    std::string_view bytes;
    const MappedFile* file;  // null: borrowed for the import
  };
  View external(const TensorProto& t, size_t bytes, const std::string& what);
  void decode(const TensorProto& t, HostTensor& out, const std::string& what);

  sdk::Graph graph_;
  std::string path_;
  std::shared_ptr<MappedFile> file_;
  std::map<std::string, std::shared_ptr<MappedFile>, std::less<>> files_;  // external ones
};

}  // namespace tessera::onnx
