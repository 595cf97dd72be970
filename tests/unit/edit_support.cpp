// SPDX-License-Identifier: Apache-2.0
#include "edit_support.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "ir/printer.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::test {

using namespace core;

std::string fingerprint(const Graph& g) {
  std::string s = print_graph(g, kPrintLocations | kPrintAuthors);
  const auto id = [](tsr_id x) { return x == TSR_NONE ? std::string("-") : std::to_string(x); };
  const auto ids = [&](const tsr_id* p, uint32_t n) {
    std::string t = "[";
    for (uint32_t i = 0; i < n; ++i) t += id(p[i]) + " ";
    return t + "]";
  };
  for (tsr_id n = 0; n < g.num_nodes(); ++n) {
    const tsr_node& x = g.node(n);
    if (!x.alive) continue;
    s += "node " + id(n) + " " + x.op + " in " + id(x.parent) + " " + id(x.prev) + "/" + id(x.next) + " by " +
         (x.author ? x.author : "") + " marks " + std::to_string(x.marks) + ids(x.operands, x.num_operands) +
         ids(x.results, x.num_results) + ids(x.regions, x.num_regions) + "\n";
  }
  for (tsr_id v = 0; v < g.num_values(); ++v) {
    const tsr_value& x = g.value(v);
    if (!x.alive) continue;
    std::vector<std::array<uint32_t, 2>> uses;
    for (const tsr_use& u : g.uses(v)) uses.push_back({u.node, u.operand});
    std::sort(uses.begin(), uses.end());
    s += "value " + id(v) + " %" + x.name + " of " + id(x.def_node) + ":" + std::to_string(x.def_index) + " in " +
         id(x.region) + " kind " + std::to_string(x.input_kind) + " back " + id(x.writeback) + " donated " +
         std::to_string(x.donated) + " key " + (x.key ? x.key : "-") + " uses " + std::to_string(x.num_uses) + ":";
    for (const auto& u : uses) s += " " + id(u[0]) + "." + std::to_string(u[1]);
    s += g.find_value(x.name) == v ? "\n" : " NOT FOUND BY NAME\n";
  }
  for (tsr_id r = 0; r < g.num_regions(); ++r) {
    const tsr_region& x = g.region(r);
    if (!x.alive) continue;
    s += "region " + id(r) + " of " + id(x.parent_node) + " " + id(x.first) + ".." + id(x.last) + ids(x.inputs, x.num_inputs) +
         ids(x.outputs, x.num_outputs) + "\n";
  }
  for (uint32_t i = 0; i < g.region(0).num_outputs; ++i) {
    const char* given = g.given_output_name(i);
    s += "output " + std::to_string(i) + (given ? std::string(" \"") + given + "\"\n" : " as its value\n");
  }
  s += "live " + std::to_string(g.num_live_nodes()) + ", tables " + std::to_string(g.num_nodes()) + " " +
       std::to_string(g.num_values()) + " " + std::to_string(g.num_regions()) + "\n";
  for (const tsr_symbol& y : g.sizes().symbols()) s += std::string("symbol ") + y.name + "\n";
  for (const Assumption& a : g.sizes().assumptions())
    s += "assume " + g.sizes().print(a.a) + " " + std::to_string(a.relation) + " " + g.sizes().print(a.b) + "\n";
  return s;
}

std::string misplaced_use(const Graph& g) {
  for (tsr_id v = 0; v < g.num_values(); ++v) {
    if (!g.value(v).alive) continue;
    const auto uses = g.uses(v);
    for (uint32_t i = 0; i < uses.size(); ++i)
      if (uses[i].node != TSR_NONE && g.use_index(uses[i].node, uses[i].operand) != i)
        return std::string("%") + g.value(v).name + ", use " + std::to_string(i);
  }
  return "";
}

namespace {

class Editor {
 public:
  Editor(Graph& g, std::mt19937_64& random) : g_(g), random_(random) {}

  bool run() {
    switch (below(18)) {
      case 0:
      case 1:
      case 2: return create();
      case 3:
      case 4: return erase();
      case 5: return move();
      case 6:
      case 7: return operand();
      case 8: return replace();
      case 9: return attribute();
      case 10: return name();
      case 11: return input();
      case 12: return outputs();
      case 13: return nested();
      case 14: return sizes();
      case 15: return output_names();
      case 16: return marks();
      default: return rest();
    }
  }

 private:
  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }
  tsr_id live_node() {
    for (int k = 0; k < 50 && g_.num_nodes() > 0; ++k)
      if (const tsr_id n = static_cast<tsr_id>(below(g_.num_nodes())); g_.node(n).alive) return n;
    return TSR_NONE;
  }
  tsr_id live_value(tsr_id region = TSR_NONE, const tsr_type* type = nullptr) {
    for (int k = 0; k < 200 && g_.num_values() > 0; ++k) {
      const tsr_id v = static_cast<tsr_id>(below(g_.num_values()));
      if (g_.value(v).alive && (region == TSR_NONE || g_.value(v).region == region) &&
          (!type || same_type(*g_.value(v).type, *type)))
        return v;
    }
    return TSR_NONE;
  }
  tsr_id live_region() {
    for (int k = 0; k < 20; ++k)
      if (const tsr_id r = static_cast<tsr_id>(below(g_.num_regions())); g_.region(r).alive) return r;
    return 0;
  }
  bool create() {
    const tsr_id region = live_region(), a = live_value(region);
    if (a == TSR_NONE) return false;
    NodeSpec s;
    s.op = below(2) ? "add" : "neg";
    s.operands = {a};
    if (s.op == "add") s.operands.push_back(live_value(region, g_.value(a).type));
    if (below(3) == 0) s.result_names = {below(2) ? "x" : "made"};
    if (below(3) == 0) s.loc = {"random.cpp", static_cast<uint32_t>(below(100)), 0};
    g_.create_node(s, region, below(2) ? TSR_NONE : g_.region(region).first);
    return true;
  }
  bool erase() {
    for (int k = 0; k < 30; ++k) {
      const tsr_id n = live_node();
      if (n == TSR_NONE) return false;
      bool used = false;
      for (uint32_t i = 0; i < g_.node(n).num_results; ++i) used |= !g_.uses(g_.node(n).results[i]).empty();
      if (used) continue;
      g_.erase_node(n);
      return true;
    }
    return false;
  }
  bool move() {
    const tsr_id n = live_node(), before = below(4) ? live_node() : TSR_NONE;
    if (n == TSR_NONE) return false;
    g_.move_node(n, before);
    return true;
  }
  bool operand() {
    const tsr_id n = live_node();
    if (n == TSR_NONE || g_.node(n).num_operands == 0) return false;
    const uint32_t i = static_cast<uint32_t>(below(g_.node(n).num_operands));
    const tsr_id old = g_.node(n).operands[i];
    g_.set_operand(n, i,
                   below(8) == 0
                       ? TSR_NONE
                       : live_value(g_.node(n).parent, old == TSR_NONE || below(6) == 0 ? nullptr : g_.value(old).type));
    return true;
  }
  bool replace() {
    const tsr_id from = live_value();
    if (from == TSR_NONE) return false;
    const tsr_id to = live_value(g_.value(from).region, g_.value(from).type);
    if (to == TSR_NONE) return false;
    g_.replace_uses(from, to);
    return true;
  }
  bool attribute() {
    const tsr_id n = live_node();
    if (n == TSR_NONE || g_.node(n).num_attrs == 0) return false;
    tsr_attr a = g_.node(n).attrs[below(g_.node(n).num_attrs)];
    if (a.kind == TSR_ATTR_INT || a.kind == TSR_ATTR_DIM) a.i = static_cast<int64_t>(below(4));
    if (a.kind == TSR_ATTR_BOOL) a.i = !a.i;
    if (a.kind == TSR_ATTR_FLOAT) a.f += 1;
    g_.set_attr(n, a);
    return true;
  }
  bool marks() {
    const tsr_id n = live_node();
    if (n == TSR_NONE) return false;
    g_.set_marks(n, static_cast<uint32_t>(below(TSR_MARK_ALL + 1)));
    return true;
  }
  bool name() {
    const tsr_id v = live_value();
    if (v == TSR_NONE) return false;
    static const char* const kNames[] = {"x", "y", "0", "odd name", "made_1"};
    g_.set_name(v, kNames[below(5)]);
    return true;
  }
  bool input() {
    const tsr_id like = live_value();
    if (like == TSR_NONE) return false;
    const tsr_id v = g_.create_input(below(2) ? "in" : "", *g_.value(like).type,
                                     static_cast<tsr_input_kind>(TSR_INPUT_ARG + below(3)), below(2) ? "key" : nullptr);
    if (below(2)) g_.set_state(v, static_cast<uint32_t>(below(3)), below(2) != 0);
    return true;
  }
  bool outputs() {
    const tsr_id region = live_region();
    std::vector<tsr_id> values;
    for (uint64_t k = below(4); k > 0; --k)
      if (const tsr_id v = live_value(region); v != TSR_NONE) values.push_back(v);
    g_.set_outputs(region, values);
    return true;
  }
  bool output_names() {
    if (below(4) == 0) {
      g_.name_outputs();
      return true;
    }
    static const char* const kNames[] = {"x", "y", "odd \"name\"", "0", nullptr};
    std::vector<const char*> names;
    for (uint32_t i = 0; i < g_.region(0).num_outputs; ++i) names.push_back(kNames[below(5)]);
    g_.set_output_names(names);  // refused where two are the same
    return true;
  }
  // A cond over one value, both branches made here.
  bool nested() {
    const tsr_id x = live_value(0);
    if (x == TSR_NONE) return false;
    const tsr_type type = *g_.value(x).type, flag = g_.make_type(TSR_BOOL, {});
    const tsr_id pred = g_.create_input("p", flag);
    NodeSpec s;
    s.op = "cond";
    s.operands = {pred, x};
    for (int k = 0; k < 2; ++k) {
      const std::string label = "arm";
      const tsr_id r = g_.create_region({&type, 1}, {&label, 1});
      tsr_id v = g_.region(r).inputs[0];
      if (below(2) && (is_float(type.dtype) || is_signed_int(type.dtype))) {
        NodeSpec neg;
        neg.op = "neg";
        neg.operands = {v};
        v = g_.node(g_.create_node(neg, r)).results[0];
      }
      g_.set_outputs(r, {&v, 1});
      s.regions.push_back(r);
    }
    if (below(6) == 0) s.regions.pop_back();  // refused, and the regions stay free
    g_.create_node(s);
    return true;
  }
  bool sizes() {
    Sizes& s = g_.sizes();
    const tsr_dim d = s.fresh("r", 0, 100, below(2) != 0);
    if (s.symbols().size() > 1)
      s.require(static_cast<tsr_relation>(below(7)), s.mul(d, 2), s.find(s.symbols()[below(s.symbols().size())].name),
                "random");
    return true;
  }
  bool rest() {
    const tsr_id v = live_value();
    switch (below(3)) {
      case 0: g_.rename("renamed"); return true;
      case 1:
        if (v == TSR_NONE) return false;
        g_.set_type(v, *g_.value(live_value()).type);
        return true;
      default:
        if (v == TSR_NONE) return false;
        g_.set_state(v, TSR_NONE, below(2) != 0);
        return true;
    }
  }

  Graph& g_;
  std::mt19937_64& random_;
};

}  // namespace

bool random_edit(Graph& graph, std::mt19937_64& random) {
  try {
    return Editor(graph, random).run();
  } catch (const Error&) {
    return false;
  }
}

std::string code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.code();
  }
  return "none";
}

}  // namespace tessera::test
