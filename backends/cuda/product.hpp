// SPDX-License-Identifier: Apache-2.0
// Contractions of the graph as products through cuBLASLt.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "blas.hpp"
#include "device.hpp"

namespace tessera::cuda {

// Which products the library computes, and how. Thread-safe.
class Products {
 public:
  // `library`: see open_library; "off": none. `tf32`: products of f32 on the matrix units, with 10 bits of mantissa.
  Products(std::shared_ptr<CudaDevice> device, std::string library, bool tf32)
      : device_(std::move(device)), library_(std::move(library)), tf32_(tf32) {}

  // Whether the node is a contraction, or a group around one.
  static bool is_one(sdk::Graph g, sdk::Node n);
  // Whether the library computes this contraction. It takes dot_general alone: matmul and linear decompose to it.
  bool takes(sdk::Node n);
  // Why the library does not compute such a node; empty: it does. Of groups it takes a dot_general with a bias and an
  // activation.
  std::string why_not(sdk::Graph g, sdk::Node n);
  bool available() { return blas() != nullptr; }
  const std::shared_ptr<Blas>& blas();  // null: there is none
  // Of workspace, for sizes that are known when the kernel is compiled: what the vendor recommends for this generation.
  static constexpr size_t kMostWorkspace = size_t{32} << 20;

  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c, const Algorithms& algorithms);
  // For caches. Null: the bytes are of another kernel.
  std::unique_ptr<sdk::Kernel> restore(std::string_view bytes);

 private:
  std::shared_ptr<CudaDevice> device_;
  std::string library_;
  bool tf32_;
  std::once_flag opened_;
  std::shared_ptr<Blas> blas_;
  std::string why_none_;
};

}  // namespace tessera::cuda
