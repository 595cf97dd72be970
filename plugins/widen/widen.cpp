// SPDX-License-Identifier: Apache-2.0
// widen: the same program in f64, as a judge of programs in narrower floats. Inputs keep their types and are converted, which
// is exact; from there on every float is f64, outputs included, but for those that are written back to states. Later passes may
// assume nothing new.
//
// Computed in its own type, between conversions, is what has no meaning in another (bits read as numbers, random numbers), what
// has an effect, the bodies of control flow, and what no record allows in f64.
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace tessera::passes {
namespace {

using sdk::Node, sdk::Value;

bool narrow(uint32_t dtype) { return is_float(dtype) && dtype != TSR_F64; }

class Widening {
 public:
  explicit Widening(sdk::Graph g) : g_(g) {}

  bool run() {
    std::vector<Node> nodes;
    for (const Node& n : g_.nodes()) nodes.push_back(n);
    if (nodes.empty()) return false;
    const sdk::Graph::At start{0, nodes.front().id, {}};
    for (const tsr_id v : g_.inputs())
      if (narrow(g_.value(v).type().dtype())) now_[v] = widened(start, g_.value(v));
    for (const Node& n : nodes) {
      if (!keeps(n) && rebuilt(n)) {
        old_.push_back(n);
        rebuilt_.insert(n.id);
        continue;
      }
      keep(n);
    }
    if (now_.empty()) return false;
    set_outputs();
    for (size_t i = old_.size(); i-- > 0;) g_.erase(old_[i]);
    return true;
  }

 private:
  Value widened(sdk::Graph::At at, Value v) const { return g_.op(at, "cast", {v}, {sdk::attr_dtype("dtype", TSR_F64)}); }
  Value now(Value v) const {
    const auto it = now_.find(v.id);
    return it == now_.end() ? v : it->second;
  }
  // As the program had it, for what is computed in its own type.
  Value as_it_was(sdk::Graph::At at, Value v) {
    const auto it = now_.find(v.id);
    if (it == now_.end()) return v;
    const Node def = v.def();
    if (!def || !rebuilt_.contains(def.id)) return v;  // an input, or kept itself
    if (!narrow(v.type().dtype())) return it->second;
    return g_.op(at, "cast", {it->second}, {sdk::attr_dtype("dtype", v.type().dtype())});
  }

  bool keeps(const Node& n) const {
    return n.is("constant") || n.is("bitcast") || !n.regions().empty() || n.op().starts_with("random") ||
           !g_.has_trait(n.raw().op, "pure");
  }

  // The node over what its operands are now; false: its record does not take it.
  bool rebuilt(const Node& n) {
    std::vector<Value> operands;
    bool any = false;
    for (uint32_t i = 0; i < n.num_operands(); ++i) {
      operands.push_back(n.has_operand(i) ? now(n.operand(i)) : g_.none());
      any = any || (n.has_operand(i) && !(operands.back() == n.operand(i)));
    }
    std::vector<tsr_attr> attrs(n.attrs().begin(), n.attrs().end());
    for (tsr_attr& a : attrs)
      if (a.kind == TSR_ATTR_DTYPE && narrow(static_cast<uint32_t>(a.i))) {
        a.i = TSR_F64;
        any = true;
      }
    if (!any) return false;
    Node made;
    try {
      made = g_.create(sdk::Graph::before(n), n.raw().op, std::span<const Value>(operands), attrs);
    } catch (const sdk::Error&) {
      return false;
    }
    g_.set_marks(made, n.marks());
    for (uint32_t i = 0; i < n.num_results(); ++i) {
      const Value old = n.result(i), v = made.result(i);
      now_[old.id] = narrow(v.type().dtype()) ? widened(sdk::Graph::before(n), v) : v;
    }
    return true;
  }

  void keep(const Node& n) {
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i))
        if (const Value v = as_it_was(sdk::Graph::before(n), n.operand(i)); !(v == n.operand(i))) g_.set_operand(n, i, v);
    sdk::Graph::At behind = sdk::Graph::before(n);
    behind.before = n.raw().next;
    for (uint32_t i = 0; i < n.num_results(); ++i)
      if (narrow(n.result(i).type().dtype())) now_[n.result(i).id] = widened(behind, n.result(i));
  }

  void set_outputs() {
    const std::vector<tsr_id> before(g_.outputs().begin(), g_.outputs().end());
    std::vector<tsr_id> outputs;
    std::vector<std::string> names;
    for (uint32_t i = 0; i < before.size(); ++i) {
      names.emplace_back(g_.output_name(i));
      bool state = false;
      for (const tsr_id v : g_.inputs()) state = state || g_.value(v).raw().writeback == i;
      const Value v = g_.value(before[i]);
      outputs.push_back((state ? as_it_was({0, TSR_NONE, {}}, v) : now(v)).id);
    }
    sdk::check(g_.api().region_set_outputs(g_.handle(), 0, outputs.data(), static_cast<uint32_t>(outputs.size())));
    std::vector<const char*> texts;
    for (const std::string& name : names) texts.push_back(name.c_str());
    g_.set_output_names(texts);
  }

  sdk::Graph g_;
  std::map<tsr_id, Value> now_;  // of a value of the program: what stands for it
  std::vector<Node> old_;        // rebuilt, and read by nobody any more
  std::set<tsr_id> rebuilt_;
};

class Widen final : public sdk::Pass {
 public:
  const char* summary() const override { return "Computes every float in f64: the judge of programs in narrower types."; }
  const char* ensures() const override { return "Nothing new; floats that are outputs are f64, whatever they were."; }
  bool run(sdk::Graph g, const sdk::Options&) override { return Widening(g).run(); }
};

}  // namespace
}  // namespace tessera::passes

TESSERA_PLUGIN(TSR_PLUGIN_ID, TSR_PLUGIN_VERSION, TSR_PLUGIN_VENDOR) {
  plugin.add_pass("widen", std::make_unique<tessera::passes::Widen>());
}
