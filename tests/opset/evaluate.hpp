// SPDX-License-Identifier: Apache-2.0
// Runs graphs node by node on the reference backend, for tests of decompositions and gradients: no pipeline in between.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.hpp"
#include "ir/records.hpp"

namespace tessera::opset {

// The standard set in a registry, its callbacks bound to this process's core.
const core::OpRegistry& standard_ops();

struct Array {  // dense, owned
  uint32_t dtype = 0;
  std::vector<int64_t> sizes;
  std::vector<char> bytes;

  int64_t count() const;
  double get(int64_t i) const;  // real part
  double get_imag(int64_t i) const;
  void set(int64_t i, double re, double im = 0);
  static Array make(uint32_t dtype, std::vector<int64_t> sizes);
};

// Outputs of the graph. Throws core::Error.
std::vector<Array> evaluate(core::Graph& graph, const std::vector<Array>& inputs);

// Decomposes until only primitives are left.
void decompose_all(core::Graph& graph);

}  // namespace tessera::opset
