// SPDX-License-Identifier: Apache-2.0
// Products whose rows do not end where a vector ends. A GPU's matrix units write rows through accesses of 16 bytes; a library
// then takes an old algorithm for the whole product, at a quarter of the speed. The weights, which are constants, get some
// more columns of zeros, and whatever reads the result reads a slice of it.
//
//   %y = dot_general %x, %w        %w: [50257, 768]
//   %p = dot_general %x, %wp       %wp: [50264, 768], padded when the graph is compiled
//   %y = slice %p
#include <algorithm>

#include "groups.hpp"

namespace tessera::passes {
namespace {

constexpr int64_t kLeastColumns = 1024;  // below, the product is small in any case

// The one free dimension of the weights of a product without a batch; -1: there are none or several.
int64_t free_dimension(const sdk::Node& dot) {
  const auto contract = dot.attr("rhs_contract").as_ints();
  const uint32_t rank = dot.operand(1).type().rank();
  if (!dot.attr("rhs_batch").as_ints().empty() || rank != contract.size() + 1) return -1;
  for (int64_t d = 0; d < rank; ++d)
    if (std::find(contract.begin(), contract.end(), d) == contract.end()) return d;
  return -1;
}

bool pad(sdk::Graph g, const sdk::Node& dot, int64_t multiple) {
  const sdk::Value w = dot.operand(1), y = dot.result();
  const uint32_t dtype = w.type().dtype();
  if (!w.def() || !w.def().is("constant") || (dtype != TSR_BF16 && dtype != TSR_F16)) return false;
  const int64_t d = free_dimension(dot);
  if (d < 0 || !y.type().is_static()) return false;
  const int64_t columns = w.type().size(d), more = (multiple - columns % multiple) % multiple;
  if (more == 0 || columns < kLeastColumns || y.type().size(-1) != columns) return false;
  uint64_t capabilities = 0;
  if (g.backend_of(dot, &capabilities).empty() || !(capabilities & TSR_CAP_FUSION)) return false;

  const sdk::Graph::At at = sdk::Graph::before(dot);
  std::vector<int64_t> low(w.type().rank(), 0), high = low;
  high[static_cast<size_t>(d)] = more;
  const sdk::Node padded = g.op(at, "pad", {w, g.none()}, {sdk::attr_dims("low", low), sdk::attr_dims("high", high)}).def();
  const sdk::Value wide = g.constant(at, g.evaluate(padded)[0]);
  g.erase(padded);
  std::vector<sdk::Value> operands = {dot.operand(0), wide};
  const sdk::Node product = g.create(at, "dot_general", operands, dot.attrs());
  std::vector<int64_t> starts(y.type().rank(), 0), strides(y.type().rank(), 1);
  const auto sizes = y.type().sizes();
  const std::vector<int64_t> limits(sizes.begin(), sizes.end());
  const sdk::Value part =
      g.op(at, "slice", {product.result()},
           {sdk::attr_dims("starts", starts), sdk::attr_dims("limits", limits), sdk::attr_ints("strides", strides)});
  for (const sdk::Node& n : {wide.def(), product, part.def()}) g.set_marks(n, dot.marks());
  const std::string name(y.name());
  g.replace_uses(y, part);
  g.erase(dot);
  g.set_name(part, name.c_str());
  if (sdk::log_enabled("fusion"))
    sdk::log("fusion", "%" + name + ": a product of " + std::to_string(columns) + " columns computes " + std::to_string(more) +
                           " more, so that its rows are aligned");
  return true;
}

}  // namespace

bool pad_columns(sdk::Graph g, tsr_id region, int64_t multiple) {
  if (multiple < 2) return false;
  std::vector<sdk::Node> products;
  for (const sdk::Node& n : g.nodes(region)) {
    if (n.marked(TSR_MARK_BACKWARD)) return false;  // the gradient reads the weights as they are
    if (n.is("dot_general")) products.push_back(n);
  }
  bool changed = false;
  for (const sdk::Node& n : products) changed |= pad(g, n, multiple);
  return changed;
}

}  // namespace tessera::passes
