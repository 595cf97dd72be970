// SPDX-License-Identifier: Apache-2.0
#include "ir/broadcast.hpp"

#include <algorithm>

#include "ir/records.hpp"
#include "ir/sizes.hpp"
#include "tessera/sizes.hpp"

namespace tessera::core {
namespace {

constexpr const char* kWiden = "broadcast_to";

bool is_given(const Sizes& sizes, tsr_dim d) {
  std::vector<uint32_t> used;
  sizes.collect_symbols(d, used);
  return std::all_of(used.begin(), used.end(), [&](uint32_t s) { return sizes.symbols()[s].hint >= 0; });
}

// Whether a run may find one of these sizes to be 1 and the other not.
bool depends_on_run(const Graph& g, tsr_dim a, tsr_dim b) {
  const Sizes& sizes = g.sizes();
  if (a == b || a == 1 || b == 1 || (!TSR_DIM_IS_EXPR(a) && !TSR_DIM_IS_EXPR(b))) return false;
  if (sizes.compare(TSR_EQ, a, b) == TSR_TRUE || (is_given(sizes, a) && is_given(sizes, b))) return false;
  if (sdk::broadcast_means_equal(g.tables(), a, b)) return false;
  const auto may_be_one = [&](tsr_dim d) { return sizes.compare(TSR_EQ, d, 1) == TSR_UNKNOWN; };
  return may_be_one(a) || may_be_one(b);
}

tsr_dim common_size(Sizes& sizes, tsr_dim a, tsr_dim b) {
  const auto of = [&](tsr_dim x, tsr_dim y) {
    return sdk::broadcast_size(
        x, y, [&](tsr_dim_op op, tsr_dim p, tsr_dim q) { return sizes.make(op, p, q); },
        [&](tsr_relation r, tsr_dim p, tsr_dim q) { return sizes.compare(r, p, q); });
  };
  // What was widened to a before needs no second widening with the same b: a is of(b, c) for a part c of it.
  const auto holds = [&](tsr_dim whole, tsr_dim part) {
    std::vector<tsr_dim> parts{whole};
    constexpr size_t kParts = 24;  // of(b, c) is written with fewer
    for (size_t i = 0; i < parts.size() && i < kParts; ++i) {
      if (!TSR_DIM_IS_EXPR(parts[i])) continue;
      if (i > 0 && parts[i] != part && of(part, parts[i]) == whole) return true;
      const tsr_dim_expr e = sizes.exprs()[TSR_DIM_EXPR_ID(parts[i])];
      if (e.op == TSR_DIM_SYMBOL) continue;
      parts.push_back(e.lhs);
      parts.push_back(e.rhs);
    }
    return false;
  };
  if (holds(a, b)) return a;
  if (holds(b, a)) return b;
  return of(a, b);
}

}  // namespace

std::optional<NodeSpec> widened(Graph& g, const OpRecord& record, const NodeSpec& spec, tsr_id region, tsr_id before) {
  const auto broadcasts = [](const ResultDecl& d) {
    return d.shape.size() == 1 && d.shape[0].kind == ShapeItem::kCall && d.shape[0].slot == kBroadcast;
  };
  const auto result = std::find_if(record.results.begin(), record.results.end(), broadcasts);
  if (result == record.results.end()) return std::nullopt;
  const std::vector<uint32_t>& runs = result->shape[0].arg_slots;

  struct Operand {
    size_t index;
    const tsr_type* type;
    std::vector<tsr_dim> shape;
    bool widen;
  };
  std::vector<Operand> operands;
  uint32_t rank = 0;
  bool symbolic = false;
  for (size_t i = 0; i < spec.operands.size() && i < record.operands.size(); ++i) {
    const std::vector<ShapeItem>& shape = record.operands[i].shape;
    if (spec.operands[i] == TSR_NONE || shape.size() != 1 || shape[0].kind != ShapeItem::kRun) continue;
    if (std::find(runs.begin(), runs.end(), shape[0].slot) == runs.end()) continue;
    const tsr_type& t = *g.value(spec.operands[i]).type;
    for (uint32_t k = 0; k < t.rank; ++k) symbolic = symbolic || TSR_DIM_IS_EXPR(t.sizes[k]);
    rank = std::max(rank, t.rank);
    operands.push_back({i, &t, {t.sizes, t.sizes + t.rank}, false});
  }
  if (!symbolic || operands.size() < 2 || !g.ops().find(kWiden)) return std::nullopt;

  Sizes& sizes = g.sizes();
  bool any = false;
  for (uint32_t k = 1; k <= rank; ++k) {  // from the last dimension
    const auto at = [&](Operand& o) { return o.shape.size() < k ? nullptr : &o.shape[o.shape.size() - k]; };
    tsr_dim size = 1;
    bool at_run = false;
    for (Operand& o : operands) {
      const tsr_dim* d = at(o);
      if (!d || *d == 1 || *d == size) continue;
      if (size == 1) {
        size = *d;
      } else if (depends_on_run(g, size, *d)) {
        size = common_size(sizes, size, *d);
        at_run = true;
      }
    }
    if (!at_run) continue;
    for (Operand& o : operands) {
      tsr_dim* d = at(o);
      if (!d || *d == 1 || !depends_on_run(g, size, *d)) continue;
      *d = size;
      o.widen = any = true;
    }
  }
  if (!any) return std::nullopt;

  NodeSpec out = spec;
  for (const Operand& o : operands) {
    if (!o.widen) continue;
    tsr_attr shape{};
    shape.name = "shape";
    shape.kind = TSR_ATTR_DIMS;
    shape.ints = o.shape.data();
    shape.count = static_cast<uint32_t>(o.shape.size());
    NodeSpec widen;
    widen.op = kWiden;
    widen.operands = {spec.operands[o.index]};
    widen.attrs = {shape};
    widen.loc = spec.loc;
    const tsr_id node = g.create_node(widen, region, before);
    out.operands[o.index] = g.node(node).results[0];
  }
  return out;
}

}  // namespace tessera::core
