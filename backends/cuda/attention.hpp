// SPDX-License-Identifier: Apache-2.0
// Attention of the graph and its gradient, through cuDNN.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "attention_plan.hpp"
#include "device.hpp"

namespace tessera::cuda {

// Which attention the library computes, and how. Thread-safe.
class Attention {
 public:
  // `any_order`: gradients whose partial sums are added in any order, which gives other last bits in each run.
  Attention(std::shared_ptr<CudaDevice> device, std::shared_ptr<LazyDnn> library, bool any_order)
      : device_(std::move(device)), library_(std::move(library)), any_order_(any_order) {}

  // Whether the node is attention, its gradient, or a group of attention and the transpose that puts its heads last.
  static bool is_one(sdk::Graph g, sdk::Node n);
  // Why the library does not compute such a node; empty: it does. Asks the library, which plans it, once for each problem.
  std::string why_not(sdk::Graph g, sdk::Node n);
  std::unique_ptr<sdk::Kernel> compile(const sdk::Compile& c, const Algorithms& algorithms);
  // For caches. Null: the bytes are of another kernel.
  std::unique_ptr<sdk::Kernel> restore(std::string_view bytes);

 private:
  std::shared_ptr<CudaDevice> device_;
  std::shared_ptr<LazyDnn> library_;
  std::shared_ptr<DnnPlans<AttentionProblem, AttentionPlan>> plans_ =
      std::make_shared<DnnPlans<AttentionProblem, AttentionPlan>>();  // kernels look for operands that lie elsewhere
  bool any_order_;
};

}  // namespace tessera::cuda
