// SPDX-License-Identifier: Apache-2.0
#include "ir/rewrite.hpp"

#include <algorithm>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "support/escaped.hpp"

namespace tessera::core {
namespace {

class Worklist final : public Graph::Listener {
 public:
  explicit Worklist(Graph& g) : g_(g) {}

  void push(tsr_id n) {
    if (n >= queued_.size()) queued_.resize(std::max<size_t>(n + 1, g_.num_nodes()), 0);
    if (queued_[n]) return;
    queued_[n] = 1;
    queue_.push_back(n);
  }
  bool pop(tsr_id& n) {
    if (queue_.empty()) return false;
    n = queue_.front();
    queue_.pop_front();
    queued_[n] = 0;
    return true;
  }
  void created(tsr_id n) override { push(n); }
  void modified(tsr_id n) override {
    push(n);
    for (uint32_t i = 0; i < g_.node(n).num_results; ++i)
      for (const tsr_use& u : g_.uses(g_.node(n).results[i]))
        if (u.node != TSR_NONE) push(u.node);
  }
  void unused(tsr_id n) override { push(n); }
  void erased(tsr_id n) override {  // its producers may have become dead, or single-use
    const tsr_node& x = g_.node(n);
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (x.operands[i] != TSR_NONE && g_.value(x.operands[i]).def_node != TSR_NONE) push(g_.value(x.operands[i]).def_node);
  }

 private:
  Graph& g_;
  std::deque<tsr_id> queue_;
  std::vector<uint8_t> queued_;
};

struct ListenerScope {
  Graph& g;
  Graph::Listener* before;
  ListenerScope(Graph& graph, Graph::Listener* l) : g(graph), before(g.set_listener(l)) {}
  ~ListenerScope() { g.set_listener(before); }
};

bool is_dead(const Graph& g, tsr_id n) {
  const tsr_node& x = g.node(n);
  // What defines an unbacked symbol is left to the pass dce, which knows whether a size still names it.
  if (x.num_results == 0 || !g.record_of(n).has(kPure) || g.record_of(n).has(kUnbacked)) return false;
  for (uint32_t i = 0; i < x.num_results; ++i)
    if (!g.uses(x.results[i]).empty()) return false;
  return true;
}

void enqueue_region(const Graph& g, tsr_id region, Worklist& list) {
  for (tsr_id n : nodes_of(g, region)) {
    for (uint32_t i = 0; i < g.node(n).num_regions; ++i) enqueue_region(g, g.node(n).regions[i], list);
    list.push(n);
  }
}

}  // namespace

bool rewrite(Graph& g, std::span<const tsr_pattern* const> patterns) {
  std::vector<const tsr_pattern*> sorted(patterns.begin(), patterns.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->benefit > b->benefit; });
  std::unordered_map<std::string_view, std::vector<const tsr_pattern*>> by_op;
  std::vector<const tsr_pattern*> any;
  for (const tsr_pattern* p : sorted) {
    if (!p->op)
      any.push_back(p);
    else
      by_op[p->op];
  }
  for (auto& [op, list] : by_op)  // keeps the order of benefit between rules for this op and rules for any op
    for (const tsr_pattern* p : sorted)
      if (!p->op || op == p->op) list.push_back(p);

  Worklist work(g);
  ListenerScope scope(g, &work);
  enqueue_region(g, 0, work);

  bool changed = false;
  // Each firing of a sane rule set makes progress on some measure; far beyond this many it goes in circles.
  size_t budget = 1000 + 100 * g.num_live_nodes();
  tsr_id n;
  while (work.pop(n)) {
    if (n >= g.num_nodes() || !g.node(n).alive) continue;  // gone, or taken back by a rollback
    if (is_dead(g, n)) {
      g.erase_node(n);
      changed = true;
      continue;
    }
    auto it = by_op.find(g.node(n).op);
    for (const tsr_pattern* p : it == by_op.end() ? any : it->second) {
      int fired = 0;
      {
        const MarksScope marks(g, g.node(n).marks);  // what a rule makes stands for the node that it is applied to
        throw_if(contained([&] { return p->apply(p->self, g.handle(), n, &fired); },
                           [&] { return "rewrite rule '" + std::string(p->name) + "': an exception left apply"; }));
      }
      if (!fired) continue;
      changed = true;
      if (--budget == 0)
        throw bug("TSR-B010", "the rewrite rules do not settle; the last to fire was '" + std::string(p->name) + "'",
                  "two rules probably undo each other, or one reports a change without making one");
      if (!g.node(n).alive) break;
      work.push(n);
      break;
    }
  }
  return changed;
}

}  // namespace tessera::core
