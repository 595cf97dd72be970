// SPDX-License-Identifier: Apache-2.0
#include "compile/recompute.hpp"

#include <algorithm>

#include "ir/graph.hpp"
#include "ir/records.hpp"

namespace tessera::core {

namespace {

class Recomputation {
 public:
  Recomputation(Graph& g, const std::vector<uint8_t>& again) : g_(g), again_(again), copy_(g.num_nodes(), TSR_NONE) {
    order_.resize(g.num_nodes(), 0);
    uint32_t k = 0;
    for (const tsr_id n : nodes_of(g, 0)) order_[n] = k++;
  }

  void run() {
    std::vector<tsr_id> readers;
    for (const tsr_id n : nodes_of(g_, 0))
      if (g_.node(n).marks & TSR_MARK_BACKWARD) readers.push_back(n);
    for (const tsr_id n : readers) {
      for (const tsr_id missing : needed(n)) make_copy(missing, n);
      redirect(n);
    }
    for (tsr_id n = g_.region(0).last; n != TSR_NONE;) {
      const tsr_id before = g_.node(n).prev;
      if (n < again_.size() && again_[n] && is_unread(n)) g_.erase_node(n);
      n = before;
    }
  }

 private:
  bool copied(tsr_id value) const {
    if (value == TSR_NONE) return false;
    const tsr_id def = g_.value(value).def_node;
    return def != TSR_NONE && def < again_.size() && again_[def] != 0;
  }
  tsr_id copy_of(tsr_id value) const {
    const tsr_value& v = g_.value(value);
    return g_.node(copy_[v.def_node]).results[v.def_index];
  }

  // Nodes whose copies reader `n` needs and that have none yet, in program order.
  std::vector<tsr_id> needed(tsr_id n) {
    std::vector<tsr_id> out, stack{n};
    while (!stack.empty()) {
      const tsr_node& x = g_.node(stack.back());
      stack.pop_back();
      for (uint32_t i = 0; i < x.num_operands; ++i) {
        if (!copied(x.operands[i])) continue;
        const tsr_id def = g_.value(x.operands[i]).def_node;
        if (copy_[def] != TSR_NONE) continue;
        copy_[def] = kPending;
        out.push_back(def);
        stack.push_back(def);
      }
    }
    std::sort(out.begin(), out.end(), [&](tsr_id a, tsr_id b) { return order_[a] < order_[b]; });
    return out;
  }

  void make_copy(tsr_id n, tsr_id before) {
    const tsr_node x = g_.node(n);
    NodeSpec spec;
    spec.op = x.op;
    for (uint32_t i = 0; i < x.num_operands; ++i)
      spec.operands.push_back(copied(x.operands[i]) ? copy_of(x.operands[i]) : x.operands[i]);
    spec.attrs.assign(x.attrs, x.attrs + x.num_attrs);
    for (uint32_t i = 0; i < x.num_results; ++i) {
      spec.result_types.push_back(*g_.value(x.results[i]).type);
      spec.result_names.emplace_back(g_.value(x.results[i]).name);
    }
    spec.typed = true;
    spec.loc = x.loc;
    spec.marks = x.marks | TSR_MARK_BACKWARD | TSR_MARK_RECOMPUTED;
    copy_[n] = g_.create_node(spec, 0, before);
  }

  void redirect(tsr_id n) {
    const uint32_t operands = g_.node(n).num_operands;
    for (uint32_t i = 0; i < operands; ++i)
      if (const tsr_id v = g_.node(n).operands[i]; copied(v)) g_.set_operand(n, i, copy_of(v));
  }

  bool is_unread(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    return std::all_of(x.results, x.results + x.num_results, [&](tsr_id v) { return g_.uses(v).empty(); });
  }

  static constexpr tsr_id kPending = TSR_NONE - 1;
  Graph& g_;
  const std::vector<uint8_t>& again_;
  std::vector<tsr_id> copy_;  // by node: TSR_NONE, kPending, or the copy
  std::vector<uint32_t> order_;
};

}  // namespace

bool recompute(Graph& g, const std::vector<uint8_t>& again) {
  if (std::none_of(again.begin(), again.end(), [](uint8_t x) { return x != 0; })) return false;
  g.begin("partition");
  try {
    Recomputation(g, again).run();
    const bool changed = g.changed();
    g.commit();
    return changed;
  } catch (...) {
    if (g.in_transaction()) g.rollback();
    throw;
  }
}

}  // namespace tessera::core
