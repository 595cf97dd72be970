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

  // Why the library does not compute a node; empty: it does. Of contractions it takes dot_general alone: matmul and linear
  // decompose to it.
  std::string why_not(sdk::Node n);
  bool available() { return blas() != nullptr; }
  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c);
  // For caches. Null: the bytes are of another kernel.
  std::unique_ptr<sdk::Kernel> restore(std::string_view bytes);

 private:
  const std::shared_ptr<Blas>& blas();  // opened when the first product asks for it

  std::shared_ptr<CudaDevice> device_;
  std::string library_;
  bool tf32_;
  std::once_flag opened_;
  std::shared_ptr<Blas> blas_;
  std::string why_none_;
};

}  // namespace tessera::cuda
