// SPDX-License-Identifier: Apache-2.0
// Sizes as functions of one symbol.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include <tessera/plugin.hpp>

namespace tessera::bucket {

// Sizes of a graph, and what they become when `symbols`, which are equal to each other, have the value `bucket`.
class Sizes {
 public:
  Sizes(sdk::Graph g, std::vector<uint32_t> symbols, int64_t bucket) : g_(g), symbols_(std::move(symbols)), bucket_(bucket) {}

  bool mentions(tsr_dim d) const;
  bool mentions(std::span<const tsr_dim> dims) const;
  bool mentions(const sdk::Value& v) const { return v && mentions(v.type().sizes()); }
  // Never smaller for a greater value of the symbol: then a tensor of the bucket's size holds one of any size below.
  bool grows(tsr_dim d) const;
  // Equal, and equal when padded as well.
  bool same(tsr_dim a, tsr_dim b) const {
    return a == b || (mentions(a) == mentions(b) && g_.compare(TSR_EQ, a, b) == TSR_TRUE);
  }
  tsr_dim padded(tsr_dim d);
  std::vector<tsr_dim> padded(std::span<const tsr_dim> dims);

 private:
  const tsr_dim_expr& expr(tsr_dim d) const;
  sdk::Graph g_;
  std::vector<uint32_t> symbols_;
  int64_t bucket_;
  bool combines_growing(tsr_dim d) const;
  mutable std::map<tsr_dim, bool> mentions_, grows_;
  std::map<tsr_dim, tsr_dim> padded_;
};

}  // namespace tessera::bucket
