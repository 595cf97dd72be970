// SPDX-License-Identifier: Apache-2.0
// Hostile .npz and .npy bytes: reading gives arrays that are what they claim, or an npz::Error.
#include <cstdlib>
#include <span>

#include "npz/npz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const auto& array : tessera::npz::read_bytes(std::as_bytes(std::span(data, size)))) {
      uint64_t bytes = tessera::npz::item_size(array.descr);
      if (bytes == 0) std::abort();
      for (const int64_t d : array.shape) {
        if (d < 0) std::abort();
        bytes *= static_cast<uint64_t>(d);
      }
      if (bytes != array.data.size()) std::abort();
    }
  } catch (const tessera::npz::Error& e) {
    if (e.code().rfind("TSR-N0", 0) != 0 || e.hint().empty()) std::abort();
  }
  return 0;
}
