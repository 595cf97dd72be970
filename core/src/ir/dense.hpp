// SPDX-License-Identifier: Apache-2.0
// Constants in text: dense<f32[2]: [1.0, 2.0]>. Reading is Reader::dense().
#pragma once

#include <cstdint>
#include <string>

#include "tessera/abi.h"

namespace tessera::core {

// Constants that a text names instead of spelling them: dense<f32[768]: ref 3>. For texts that never leave this process and its
// cache.
class NamedConstants {
 public:
  virtual ~NamedConstants() = default;
  // Writes the name ("3", or anything where the text is not read again); false: this one is spelled.
  virtual bool print(std::string& out, const tsr_tensor& constant) const = 0;
  // The data, aligned to its elements, which outlives the graph that is read; null: there is none of this number and size.
  virtual const void* find(uint64_t number, uint32_t dtype, int64_t bytes) const = 0;
};

// Element by element up to 64 of them, beyond as hex; PrintFlags as in printer.hpp. `names` may be null.
void append_dense(std::string& out, const tsr_tensor& constant, uint32_t flags, const NamedConstants* names = nullptr);

bool is_splat(const tsr_tensor& constant);  // more than one element, all equal, of a value that has a text

// Dtype, shape and bytes; the unused bits of a packed tensor's last byte do not count.
bool same_constant(const tsr_tensor& a, const tsr_tensor& b);

}  // namespace tessera::core
