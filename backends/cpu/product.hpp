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
};
ProductClaim claim_product(const tessera::sdk::Node& node);
bool is_product(std::string_view op);
ProductAxes matmul_axes(const tessera::sdk::Node& matmul);  // of matmul_integer too
// The kernels that a product runs on.
const GemmIsa* product_kernels(const Isa& isa, const tessera::sdk::Node& product, const ProductAxes& axes);

// How a product with constant weights may be computed. kPredicted: one step of Strassen's algorithm where it is predicted to
// pay.
enum class ProductWay { kPredicted, kPlain, kStrassen };
// Whether kStrassen is possible: f32, one constant matrix on the right, known sizes, elements of K side by side on the left.
bool can_strassen(const tessera::sdk::Compile& c);

// A product, or a `fused` node of one and what `Finish` takes.
std::unique_ptr<tessera::sdk::Kernel> make_product(const tessera::sdk::Compile& c, const Isa& isa, ProductWay way);
}  // namespace cpu
