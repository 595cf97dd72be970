// SPDX-License-Identifier: Apache-2.0
// Tensors in every memory layout, and as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::conformance {

namespace e = tessera::embed;

// How the elements of a tensor lie in memory.
enum class Layout {
  Dense,       // row-major
  Transposed,  // column-major
  Sliced,      // every second element along the last axis of a larger tensor, from its second row on
  Repeated,    // stride 0 along the first axis of more than one element, whose slices are therefore equal
  Reversed,    // negative stride along the last axis
};
inline constexpr Layout layouts[] = {Layout::Dense, Layout::Transposed, Layout::Sliced, Layout::Repeated, Layout::Reversed};
const char* layout_name(Layout);

// A tensor with the given elements (dense, in the dtype's memory form). Repeated takes the first slice for all.
e::Tensor arrange(uint32_t dtype, const std::vector<int64_t>& sizes, const std::vector<char>& dense, Layout layout);

// Shape and elements of a dense tensor, "[2, 3] {1, 2.5, ...}", for messages.
std::string print(const tsr_tensor& t, int64_t limit = 16);
std::string print_element(const tsr_tensor& t, int64_t index);
std::string type_text(const tsr_tensor& t);  // "f32[2, 3]"

}  // namespace tessera::conformance
