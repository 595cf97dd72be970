// SPDX-License-Identifier: Apache-2.0
// Tensors on disk: safetensors files (https://github.com/huggingface/safetensors#format), and checkpoints made of them.
//
//   Checkpoint c;
//   c.put("model", model);
//   c.put("optimizer", optimizer);
//   c.metadata["step"] = "1200";
//   c.save("run/last.safetensors");
//
//   Checkpoint c = Checkpoint::load("run/last.safetensors");
//   c.get("model", model);
//
// A file appears complete or not at all: the bytes go to a temporary file beside it, which is flushed to the disk and renamed.
// A process killed while it writes leaves the last good file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn.hpp"
#include "tessera/tensor.hpp"

namespace tessera {

// Errors: TSR-F053 a file that cannot be opened, read or written (of the environment); TSR-F054 one that is damaged, cut short
// or no safetensors file; TSR-F055 a dtype that the format does not have; TSR-F056 a key that a checkpoint lacks.
struct TensorFile {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};
TensorFile load_safetensors(const std::string& path);
// Tensors on devices are copied to the host, and strided ones made dense.
void save_safetensors(const std::string& path, const std::map<std::string, Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata = {});

// A set of named tensors and texts, put together from the state of modules.
class Checkpoint : public TensorFile {
 public:
  // The tensors of a module's state, under "prefix.".
  void put(const std::string& prefix, nn::ModuleBase& module);
  // Gives the module the tensors under "prefix.". Throws TSR-F040 listing what is missing, unexpected or of another shape, and
  // then changes nothing.
  void get(const std::string& prefix, nn::ModuleBase& module) const;
  const std::string& text(const std::string& key) const;  // of the metadata
  const Tensor& tensor(const std::string& key) const;
  void save(const std::string& path) const { save_safetensors(path, tensors, metadata); }
  static Checkpoint load(const std::string& path) { return Checkpoint(load_safetensors(path)); }
  Checkpoint() = default;

 private:
  explicit Checkpoint(TensorFile f) : TensorFile(std::move(f)) {}
};

// Writes a file that appears complete or not at all, as checkpoints do. Throws TSR-F053.
void write_file(const std::string& path, std::span<const std::byte> bytes);

namespace detail {
// The directory of a safetensors file: what its header says, checked against the size of the file. Tensors do not overlap and
// leave no gap. Throws TSR-F054.
struct StoredTensor {
  DType dtype;
  std::vector<int64_t> shape;
  uint64_t offset, bytes;  // in the file
};
struct StoredFile {
  std::map<std::string, StoredTensor> tensors;
  std::map<std::string, std::string> metadata;
};
// `head` is the file's beginning: 8 bytes of length and the header, of a file of `size` bytes.
StoredFile parse_safetensors(std::span<const std::byte> head, uint64_t size, const std::string& path);
}  // namespace detail

}  // namespace tessera
