// SPDX-License-Identifier: Apache-2.0
// What the fake NVRTC calls a cubin: a shared object with one thunk for each kernel, behind a header in text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fake {

struct Entry {
  std::string name;
  int64_t shared_bytes = 0;
  std::vector<uint32_t> sizes;  // of its parameters
};

// Compiles CUDA C++ of the kit's dialect, or of the strided copy. Empty, and `log` says why: it does not compile.
std::string compile(const std::string& text, std::string& log);
// Opens it. False: it is none.
bool load(const void* image, void** library, std::vector<Entry>* entries);

}  // namespace fake
