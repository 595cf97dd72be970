// SPDX-License-Identifier: Apache-2.0
// Hostile safetensors bytes: the directory names ranges that lie in the file, side by side, or it is refused.
#include <cstdlib>
#include <span>

#include "tessera/dtypes.hpp"
#include "tessera/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto file = tessera::detail::parse_safetensors(std::as_bytes(std::span(data, size)), size, "<memory>");
    uint64_t bytes = 0;
    for (const auto& [name, t] : file.tensors) {
      if (t.offset > size || t.bytes > size - t.offset) std::abort();
      uint64_t expected = static_cast<uint64_t>(tessera::dtype_bits(static_cast<uint32_t>(t.dtype))) / 8;
      for (const int64_t n : t.shape) {
        if (n < 0) std::abort();
        expected *= static_cast<uint64_t>(n);
      }
      if (expected != t.bytes) std::abort();
      bytes += t.bytes;
    }
    if (bytes >= size) std::abort();
  } catch (const tessera::UserError& e) {
    if (e.code() != "TSR-F054" || e.hint().empty()) std::abort();
  }
  return 0;
}
