// SPDX-License-Identifier: Apache-2.0
// Simple ops behind a product or a convolution, computed on what has just been written while it is in the nearest cache. They
// round as they do alone: none of them contracts with another.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gemm/tables.hpp"
#include "strided.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// The chain of steps behind `anchor` in the region of a `fused` node.
class Finish {
 public:
  static constexpr size_t kMaxSteps = 8;

  // Null, and why: the region holds something else, or its result is not the end of the chain. `anchor`'s result is f32.
  static std::optional<Finish> of(const tessera::sdk::Node& fused, const tessera::sdk::Node& anchor, const char** why);
  // The chain from `anchor`'s result to `end`, maybe of no steps, wherever both are in the region.
  static std::optional<Finish> chain(const tessera::sdk::Node& fused, const tessera::sdk::Node& anchor, tsr_id end,
                                     const char** why);
  size_t size() const { return steps_.size(); }
  bool reads_nothing() const;  // but the results
  // Whether it is a bias (a row of columns, or a value per channel), a residual of the result's shape, and relu, in this order
  // and none of them necessarily. *bias and *add: operands of the fused node, -1 for none.
  bool sums_and_relu(int* bias, int* add, bool* relu) const;

  // Sizes of the operands that are read; of the compiled node.
  void bind(const tessera::sdk::Compile& c);
  int64_t workspace_of(const int64_t* dims, uint64_t strided) const;
  // Fills `out`; operands that are not dense are copied to `space`.
  int steps(const tsr_launch& l, char* space, FinishStep* out) const;
  std::string name() const;  // ".add.relu"

 private:
  struct Step {
    FinishStep::Kind kind;
    FinishStep::Mode mode = FinishStep::kScalar;
    uint32_t operand = 0;  // of the fused node, unless the mode is kScalar
    float lo = 0, hi = 0;
    LaunchSizes sizes;
    bool strided = false;
  };
  std::vector<Step> steps_;
};

// The one product or convolution in the region of a `fused` node; false: none, or several.
tessera::sdk::Node anchor_of(const tessera::sdk::Node& fused);
// Which operand of the fused node stands for operand `i` of a node in its region.
uint32_t outer_operand(const tessera::sdk::Node& fused, const tessera::sdk::Node& inner, uint32_t i);
uint32_t outer_operand(const tessera::sdk::Node& fused, const tessera::sdk::Value& v);  // of an input of the region
bool is_outer_operand(const tessera::sdk::Node& fused, const tessera::sdk::Node& inner, uint32_t i);

}  // namespace cpu
