// SPDX-License-Identifier: Apache-2.0
// Runs small models that tests write: a folder for their files, and values in and out of tensors.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "model_builder.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/embed.hpp"

namespace tessera::onnx_test {

// A context of the config `eager`.
inline const embed::Context& context() {
  static const embed::Context c = [] {
    embed::ContextOptions o;
    o.config_path = "eager";
    if (const char* build = std::getenv("TESSERA_BUILD_DIR")) o.plugin_dirs = {std::string(build) + "/lib/tessera/plugins"};
    return embed::Context(o);
  }();
  return c;
}

// A folder of its own, gone at the end.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_onnx_XXXXXX").string();
    REQUIRE(mkdtemp(name.data()));
    path_ = name;
  }
  Folder(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }
  [[nodiscard]] std::string without(std::string text) const {
    for (size_t at; (at = text.find(path_.string() + "/")) != text.npos;) text.erase(at, path_.string().size() + 1);
    return text;
  }

 private:
  std::filesystem::path path_;
};

inline embed::Graph load(const Folder& folder, const std::string& bytes) {
  folder.write("m.onnx", bytes);
  return context().load((folder / "m.onnx").string());
}
inline embed::Executable compile(const Folder& folder, const std::string& bytes) {
  return context().compile(load(folder, bytes));
}

using Sizes = std::vector<int64_t>;

template <class T>
embed::Tensor tensor_of(uint32_t dtype, const Sizes& sizes, const std::vector<T>& values) {
  embed::Tensor t = embed::Tensor::create(dtype, sizes);
  REQUIRE(t.elements() == static_cast<int64_t>(values.size()));
  if (!values.empty()) std::memcpy(t.data(), values.data(), values.size() * sizeof(T));
  return t;
}
inline embed::Tensor floats(const Sizes& sizes, const std::vector<float>& values) {
  return tensor_of<float>(TSR_F32, sizes, values);
}
inline embed::Tensor ints(const Sizes& sizes, const std::vector<int64_t>& values) {
  return tensor_of<int64_t>(TSR_I64, sizes, values);
}

inline Sizes sizes_of(const embed::Tensor& t) { return {t.sizes().begin(), t.sizes().end()}; }
inline std::vector<double> values_of(const embed::Tensor& any) {
  const embed::Tensor t = any.copy_to(0);
  std::vector<double> out(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = load_as<double>(static_cast<tsr_dtype>(t.dtype()), t.data(), static_cast<int64_t>(i));
  return out;
}

// A protobuf `type` of ONNX's TensorProto for a dtype.
inline constexpr int kUint8 = 2, kInt8 = 3, kInt32 = 6;

}  // namespace tessera::onnx_test
