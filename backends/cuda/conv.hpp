// SPDX-License-Identifier: Apache-2.0
// Convolutions of the graph, with what follows them, through cuDNN and cuBLASLt.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "device.hpp"
#include "dnn.hpp"
#include "product.hpp"

namespace tessera::cuda {

// Which convolutions the libraries compute, and how. Thread-safe.
class Convolutions {
 public:
  // `library`: see open_library; "off": none. `tf32`: those of f32 on the matrix units, with 10 bits of mantissa. `products`:
  // for those of one tap, which are products of pixels and channels.
  Convolutions(std::shared_ptr<CudaDevice> device, std::string library, bool tf32, Products& products)
      : device_(std::move(device)), library_(std::move(library)), tf32_(tf32), products_(products) {}

  // Whether the node is a convolution, or a group around one.
  static bool is_one(sdk::Graph g, sdk::Node n);
  // Why no library computes such a node; empty: one does. Asks the library, which plans the convolution, once for each problem.
  std::string why_not(sdk::Graph g, sdk::Node n);
  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c);
  // For caches. Null: the bytes are of another kernel.
  std::unique_ptr<sdk::Kernel> restore(std::string_view bytes);

 private:
  const std::shared_ptr<Dnn>& dnn();  // opened when the first convolution asks for it

  std::shared_ptr<CudaDevice> device_;
  std::string library_;
  bool tf32_;
  Products& products_;
  std::once_flag opened_;
  std::shared_ptr<Dnn> dnn_;
  std::string why_none_;
};

}  // namespace tessera::cuda
