// SPDX-License-Identifier: Apache-2.0
// Graph text to kernels, data for them, and running them: by the interpreter, and as text compiled by the system's compiler.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "tessera/kit/emit.hpp"
#include "tessera/kit/lower.hpp"

namespace tessera::test {

// The standard op set in this process; sets the host that sdk:: functions call.
const core::OpRegistry& standard_ops();
std::unique_ptr<core::Graph> parse(const std::string& text);
// The whole graph as one piece; constants of one element are left out and become literals.
kit::Lowered lower_graph(core::Graph& g, const std::string& name, const kit::LowerOptions& options = {});

// One buffer per kernel buffer, of evaluated extents; inputs are filled with numbers that include zeros of both signs,
// infinities, NaN and subnormals (`wild`), or stay tame. Indices (i64, i32) are small.
struct Data {
  std::vector<std::vector<char>> bytes;
  std::vector<void*> pointers();
};
Data make_data(const kit::Kernel& k, const std::vector<int64_t>& symbols, uint64_t seed, bool wild);
// "" when the outputs agree bit for bit (every NaN equals every NaN), else the first difference.
std::string difference(const kit::Kernel& k, const Data& a, const Data& b);

// Machine levels that this processor has: vector bytes and the compiler's flags.
struct Level {
  int vector_bytes;
  std::string flags;
};
std::vector<Level> levels();

// Compiles the text to a shared library and opens it. Throws std::runtime_error with the compiler's output.
class Compiled {
 public:
  Compiled(const std::string& text, const std::string& flags);
  ~Compiled();
  void* symbol(const std::string& name) const;

 private:
  std::string directory_;
  void* library_ = nullptr;
};

// Runs a compiled kernel as a host would, with its units cut into pieces at random places, in random order. Returns the faults.
uint32_t run_compiled(const Compiled& c, const std::string& name, Data& data, const std::vector<int64_t>& symbols,
                      std::mt19937_64& random);

}  // namespace tessera::test
