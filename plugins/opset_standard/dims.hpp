// SPDX-License-Identifier: Apache-2.0
// Size arithmetic that works with a graph (symbolic sizes) and, at run time, without one (numbers only).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/abi.h"

namespace tessera::opset {

using DimVector = std::vector<tsr_dim>;

class Dims {
 public:
  explicit Dims(tsr_graph* graph) : graph_(graph) {}

  static bool known(tsr_dim d) { return !TSR_DIM_IS_EXPR(d); }
  static bool known(std::span<const tsr_dim> d);

  // Throw on overflow, a division by zero, and an expression without a graph.
  tsr_dim make(tsr_dim_op op, tsr_dim a, tsr_dim b) const;
  tsr_dim add(tsr_dim a, tsr_dim b) const { return make(TSR_DIM_ADD, a, b); }
  tsr_dim sub(tsr_dim a, tsr_dim b) const { return make(TSR_DIM_SUB, a, b); }
  tsr_dim mul(tsr_dim a, tsr_dim b) const { return make(TSR_DIM_MUL, a, b); }
  tsr_dim floordiv(tsr_dim a, tsr_dim b) const { return make(TSR_DIM_FLOORDIV, a, b); }
  // high - low, where low <= high. A bound that was clamped to the other one gives max(high - a, 0) for low = min(a, high), and
  // likewise for high = max(b, low): chains of slices keep short sizes.
  tsr_dim distance(tsr_dim low, tsr_dim high) const;
  tsr_dim ceildiv(tsr_dim a, tsr_dim b) const { return floordiv(sub(add(a, b), 1), b); }  // b > 0
  tsr_dim min(tsr_dim a, tsr_dim b) const { return make(TSR_DIM_MIN, a, b); }
  tsr_dim max(tsr_dim a, tsr_dim b) const { return make(TSR_DIM_MAX, a, b); }
  tsr_dim product(std::span<const tsr_dim> d) const;

  tsr_truth compare(tsr_relation r, tsr_dim a, tsr_dim b) const;
  bool proven(tsr_relation r, tsr_dim a, tsr_dim b) const { return compare(r, a, b) == TSR_TRUE; }
  // False when the relation is provably wrong; an open one becomes an assumption of the graph.
  bool assume(tsr_relation r, tsr_dim a, tsr_dim b, const char* why) const;
  // A new size that depends on data, in [min, max].
  tsr_dim unbacked(int64_t min, int64_t max) const;

  [[nodiscard]] bool is_unbacked_symbol(tsr_dim d) const;
  // The unbacked symbols that an expression mentions, by number, each once.
  [[nodiscard]] std::vector<uint32_t> unbacked_symbols(tsr_dim d) const;

  // Assumes that a dimension of size `have` is repeated or left alone to give `want`: it is equal, or 1. False: it is neither.
  bool assume_repeats(tsr_dim have, tsr_dim want, const char* why) const;
  // The size of two dimensions that broadcast against each other; false: they do not.
  bool broadcast(tsr_dim a, tsr_dim b, tsr_dim& out) const;

  // A number for estimates: symbols stand at their hint, else near 64 within their range.
  double estimate(tsr_dim d) const;

  std::string print(tsr_dim d) const;
  std::string print(std::span<const tsr_dim> d) const;  // "[s0, 4]"

  tsr_graph* graph() const { return graph_; }

 private:
  bool is_given(tsr_dim d) const;
  tsr_graph* graph_;
};

}  // namespace tessera::opset
