// SPDX-License-Identifier: Apache-2.0
// dot_general, matmul and linear as one product: which dims of the operands are batch, rows, columns and depth.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gemm/gemm.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Axis numbers; -1: the operand has no such dim (it broadcasts).
struct ProductAxes {
  std::vector<std::pair<int, int>> batch, k;
  std::vector<int> m, n;
};

// Null `why`: the node is a product that this backend takes.
struct ProductClaim {
  const char* why = nullptr;
  ProductAxes axes;
  bool bias = false;
};
ProductClaim claim_product(const tessera::sdk::Node& node);
bool is_product(std::string_view op);
// The kernels that a product runs on.
const GemmIsa* product_kernels(const Isa& isa, const tessera::sdk::Node& product, const ProductAxes& axes);

// Where the operands of a product stand among those of the node that a launch serves: the product itself, or a fused region around it.
struct ProductOperands {
  uint32_t index[3];
  bool bias;
};

// What is computed on finished tiles instead of storing them.
class ProductEpilogue {
 public:
  virtual ~ProductEpilogue() = default;
  virtual int in_place() const = 0;                          // as Kernel::in_place
  virtual int64_t workspace(const int64_t* dims) const = 0;  // bytes of its own
  // Runs the product with itself as the epilogue.
  virtual void run(Gemm& g, const tsr_launch& l, void* own, void* product_workspace, int slots,
                   const std::string& name) const = 0;
};

std::unique_ptr<tessera::sdk::Kernel> make_product(const tessera::sdk::Compile& c, const Isa& isa);
// `product` may lie in a region of the node that is compiled. Without an epilogue the result is stored, with the bias added.
std::unique_ptr<tessera::sdk::Kernel> make_product(const tessera::sdk::Compile& c, const Isa& isa,
                                                   const tessera::sdk::Node& product, ProductAxes axes,
                                                   ProductOperands operands, std::unique_ptr<ProductEpilogue> behind,
                                                   std::string name);

}  // namespace cpu
