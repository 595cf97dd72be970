// SPDX-License-Identifier: Apache-2.0
// One op as a program: its text, the two backends that run it, and tensors in every memory layout.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/embed.hpp"

namespace tessera::differential {

namespace e = tessera::embed;

// The context of all tests here: op set, eager, reference and null, no passes. Made on first use.
const e::Context& context();

// `text` is one graph. Throws e::Error. Backends: "eager", "reference", "null", or "cpu:ISA" for the cpu backend with eager
// behind it, "cpu+2x2:ISA" for the same with winograd = "2x2", "cpu+fuse:ISA" with the pass fuse, "cpu+fuse+relaxed:ISA" with relaxed numerics too,
// "cpu+fuse+plain:ISA" with strassen = false,
// "cuda" for it with the reference behind it; "sim:32" and "sim:64" for sim with kernels = "text" at that wave,
// "cpu+fuse+map:ISA" with the pass map_batch for whatever batch there is, "cpu+fuse+threadsN:ISA" on N threads.
e::Executable compile(const std::string& text, const std::string& backend);
// "cpu:baseline", "cpu:avx2", ...: every instruction set that this machine has; empty without the cpu backend.
std::vector<std::string> cpu_backends();

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

}  // namespace tessera::differential
