// SPDX-License-Identifier: Apache-2.0
// Which ops compute a batch item by item: by op, how each operand is read.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <tessera/plugin.hpp>

namespace tessera::map_batch {

enum class Read : uint8_t {
  kRows,   // item i of the result depends on item i of this operand alone
  kWhole,  // every item reads all of it
};

// A tensor holds `items` items when its first dimension is a multiple of them: item i is the i-th of `items` equal parts of its
// rows.
bool holds_items(sdk::Type t, int64_t items);

struct Rule {
  std::vector<Read> reads;  // by operand, one kRows at least; what is omitted counts as kWhole
  double flops = 0;         // of one item, of products, convolutions and attention
  int64_t rows = 0;         // of an item, that are multiplied with weights; 0: no weights are
};
// Nothing: `n` does not compute its results item by item, or nothing is known of it. All sizes of what it reads and makes are
// numbers then.
std::optional<Rule> rule_for(sdk::Graph g, sdk::Node n, int64_t items);

// The attributes of `n` for one item: dimension 0 of each size that they name becomes an item's.
class ItemAttrs {
 public:
  ItemAttrs(sdk::Node n, int64_t items);
  std::span<const tsr_attr> get() const { return attrs_; }

 private:
  std::vector<tsr_attr> attrs_;
  std::vector<tsr_dim> first_;  // the one list of sizes that changes
};

}  // namespace tessera::map_batch
