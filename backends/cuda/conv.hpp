// SPDX-License-Identifier: Apache-2.0
// Convolutions of the graph, with what follows them, through cuDNN and cuBLASLt.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "conv_plan.hpp"
#include "device.hpp"
#include "product.hpp"

namespace tessera::cuda {

// Which convolutions the libraries compute, and how. Thread-safe.
class Convolutions {
 public:
  // `tf32`: those of f32 on the matrix units, with 10 bits of mantissa. `products`: for those of one tap, which are products of
  // pixels and channels.
  Convolutions(std::shared_ptr<CudaDevice> device, std::shared_ptr<LazyDnn> library, bool tf32, Products& products)
      : device_(std::move(device)), library_(std::move(library)), tf32_(tf32), products_(products) {}

  // Whether the node is a convolution, or a group around one.
  static bool is_one(sdk::Graph g, sdk::Node n);
  // Why no library computes such a node; empty: one does. Asks the library, which plans the convolution, once for each problem.
  std::string why_not(sdk::Graph g, sdk::Node n);
  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c, const Algorithms& algorithms);
  // For caches. Null: the bytes are of another kernel.
  std::unique_ptr<sdk::Kernel> restore(std::string_view bytes);

 private:
  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<LazyDnn> library_;
  DnnPlans<ConvProblem, ConvPlan> plans_;
  bool tf32_;
  Products& products_;
};

}  // namespace tessera::cuda
