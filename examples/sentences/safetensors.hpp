// SPDX-License-Identifier: Apache-2.0
// The directory of a .safetensors file: 8 bytes of length, that many bytes of JSON, then the data
// (https://github.com/huggingface/safetensors#format). The data itself is not read: whoever uses it maps the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace sentences {

struct StoredTensor {
  std::string dtype;  // as the file names it: "F32", "I64" ...
  std::vector<int64_t> shape;
  uint64_t offset = 0, bytes = 0;  // in the file
};

// Throws Error where the file is truncated, lies about a length, or names a range outside of itself or of another size than its
// shape.
std::map<std::string, StoredTensor> read_safetensors(const std::string& path);

}  // namespace sentences
