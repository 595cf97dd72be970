// SPDX-License-Identifier: Apache-2.0
#include "ir/verifier.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/graph.hpp"
#include "ir/infer.hpp"
#include "ir/lexer.hpp"
#include "ir/printer.hpp"
#include "ir/reader.hpp"
#include "ir/records.hpp"
#include "support/error.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {
namespace {

class Verifier {
 public:
  // Inference makes sizes in the graph; they are taken back at the end. Nothing else is written.
  explicit Verifier(const Graph& g)
      : g_(g), writable_(const_cast<Graph&>(g)), sizes_(g.sizes()), before_(g.sizes().checkpoint()) {}
  ~Verifier() { writable_.sizes().restore(before_); }
  Verifier(const Verifier&) = delete;

  void whole() {
    expressions();
    structure();
    for (const tsr_id r : reached_) region_values(r);
    printable_ = true;
    inputs();
    output_names();
    for (const tsr_id r : reached_) {
      for (const tsr_id n : nodes_of(g_, r)) operands_in_order(n);
      outputs(r);
    }
    if (!uses_match()) each_use();
    for (const tsr_id r : reached_)
      for (const tsr_id n : nodes_of(g_, r)) against_record(n);
  }

  void some(std::span<const tsr_id> nodes) {
    order_.assign(g_.num_nodes(), 0);
    numbered_.assign(g_.num_regions(), false);
    for (const tsr_id n : nodes) {
      const tsr_node& x = g_.node(n);
      ids(n);
      number_region(x.parent);
      for (uint32_t i = 0; i < x.num_regions; ++i) owned_region(n, x.regions[i]);
      for (uint32_t i = 0; i < x.num_results; ++i) result(n, i);
    }
    printable_ = true;
    for (const tsr_id n : nodes) {
      const tsr_node& x = g_.node(n);
      operands_in_order(n);
      for (uint32_t i = 0; i < x.num_operands; ++i)
        if (x.operands[i] != TSR_NONE) has_use(n, i);
      for (uint32_t i = 0; i < x.num_results; ++i) {
        uses_of(x.results[i]);
        for (const tsr_use& u : g_.uses(x.results[i]))
          if (u.node != TSR_NONE && g_.node(u.node).parent == x.parent && order_[u.node] <= order_[n])
            fail(6, u.node,
                 "operand " + std::to_string(u.operand) + ", %" + g_.value(x.results[i]).name + ", is defined after it");
      }
      against_record(n);
    }
  }

 private:
  // ------------------------------------------------------------------------------------------------------- messages
  [[noreturn]] void fail(int invariant, const std::string& what) const {
    char code[16];
    std::snprintf(code, sizeof code, "TSR-I1%02d", invariant);
    throw bug(code, "graph @" + std::string(g_.tables().name) + " breaks invariant V" + std::string(code + 6) + ": " + what,
              "the edit that did it is a bug: run with `pipeline.verify = \"each\"` to find the pass");
  }
  [[noreturn]] void fail(int invariant, tsr_id node, const std::string& what) const {
    // Only what has been checked before this invariant can be printed.
    fail(invariant, text(node, invariant >= 18 && invariant <= 20) + ": " + what);
  }

  std::string text(tsr_id n, bool whole) const {
    const tsr_node& x = g_.node(n);
    std::string s = !printable_ ? "node " + std::to_string(n) + " (" + (x.op ? x.op : "") + ")"
                    : whole     ? print_node(g_, n, kPrintElideConstants | kPrintLocations)
                                : g_.describe(n);
    if (const size_t line = s.find('\n'); line != std::string::npos) s.resize(line);
    if (s.size() > 300) s = s.substr(0, 300) + "...";
    if (x.author) s += " (by " + std::string(x.author) + ")";
    return s;
  }
  std::string name(tsr_id v) const { return "%" + std::string(g_.value(v).name ? g_.value(v).name : ""); }

  // ---------------------------------------------------------------------------------------------- sizes (V24 .. V26)
  bool known(tsr_dim d, size_t limit) const { return !TSR_DIM_IS_EXPR(d) || TSR_DIM_EXPR_ID(d) < limit; }

  void expressions() const {
    const auto& symbols = sizes_.symbols();
    const auto& exprs = sizes_.exprs();
    for (size_t i = 0; i < exprs.size(); ++i) {
      const tsr_dim_expr& e = exprs[i];
      if (e.op > TSR_DIM_MAX)
        fail(24, "expression " + std::to_string(i) + " has the unknown operation " + std::to_string(e.op));
      if (e.op == TSR_DIM_SYMBOL ? e.symbol >= symbols.size() : !known(e.lhs, i) || !known(e.rhs, i))
        fail(24, "expression " + std::to_string(i) + " names a symbol or an expression that does not come before it");
    }
    std::unordered_set<std::string_view> names;
    for (const tsr_symbol& s : symbols) {
      const std::string symbol = s.name ? s.name : "";
      if (!is_identifier(symbol)) fail(25, "the symbol '" + symbol + "' is not named by an identifier");
      if (!names.insert(s.name).second) fail(25, "there are two symbols '" + symbol + "'");
      if (s.min > s.max)
        fail(25, "the range " + std::to_string(s.min) + ".." + std::to_string(s.max) + " of symbol '" + symbol + "' is empty");
    }
    const Sizes::WithoutAssumptions scope(writable_.sizes());
    for (const Assumption& a : sizes_.assumptions()) {
      if (!known(a.a, exprs.size()) || !known(a.b, exprs.size()))
        fail(24, "an assumption names an expression that does not exist");
      if (sizes_.compare(a.relation, a.a, a.b) == TSR_FALSE)
        fail(26, "the assumption about " + sizes_.print(a.a) + " and " + sizes_.print(a.b) + " holds for no value: " + a.why);
    }
  }

  // ------------------------------------------------------------------------------------------ structure (V01 .. V05)
  bool live_value(tsr_id v) const { return v < g_.num_values() && g_.value(v).alive; }

  void ids(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (x.operands[i] != TSR_NONE && !live_value(x.operands[i]))
        fail(5, n, "operand " + std::to_string(i) + " is no live value");
    for (uint32_t i = 0; i < x.num_results; ++i)
      if (!live_value(x.results[i])) fail(5, n, "result " + std::to_string(i) + " is no live value");
  }

  void ids_of_region(tsr_id r) const {
    const tsr_region& x = g_.region(r);
    for (uint32_t i = 0; i < x.num_inputs; ++i)
      if (!live_value(x.inputs[i]))
        fail(5, "input " + std::to_string(i) + " of region " + std::to_string(r) + " is no live value");
    for (uint32_t i = 0; i < x.num_outputs; ++i)
      if (!live_value(x.outputs[i]))
        fail(5, "output " + std::to_string(i) + " of region " + std::to_string(r) + " is no live value");
  }

  void owned_region(tsr_id n, tsr_id r) const {
    if (r == 0 || r >= g_.num_regions() || !g_.region(r).alive)
      fail(4, n, "region " + std::to_string(r) + " is not alive, or the body");
    if (g_.region(r).parent_node != n) fail(4, n, "region " + std::to_string(r) + " names another node as its parent");
  }

  void structure() {
    if (g_.num_regions() == 0 || !g_.region(0).alive || g_.region(0).parent_node != TSR_NONE)
      fail(1, "the body is not region 0, or has an owner");
    order_.assign(g_.num_nodes(), 0);
    std::vector<bool> seen(g_.num_regions(), false);
    reached_.push_back(0);
    seen[0] = true;
    size_t count = 0;
    for (size_t at = 0; at < reached_.size(); ++at) {
      const tsr_id r = reached_[at];
      ids_of_region(r);
      tsr_id previous = TSR_NONE;
      for (tsr_id n = g_.region(r).first; n != TSR_NONE; previous = n, n = g_.node(n).next) {
        const std::string where = "region " + std::to_string(r);
        if (n >= g_.num_nodes() || !g_.node(n).alive)
          fail(2, "the list of " + where + " holds node " + std::to_string(n) + ", which is not alive");
        if (g_.node(n).parent != r) fail(2, n, "it is in the list of " + where + ", but names another region as its parent");
        if (g_.node(n).prev != previous) fail(2, n, "its predecessor in " + where + " is not the one it names");
        if (order_[n] != 0) fail(2, n, "the list of " + where + " comes back to it");
        order_[n] = static_cast<uint32_t>(++count);
        ids(n);
        for (uint32_t i = 0; i < g_.node(n).num_regions; ++i) {
          const tsr_id child = g_.node(n).regions[i];
          owned_region(n, child);
          if (seen[child]) fail(4, n, "region " + std::to_string(child) + " is owned twice");
          seen[child] = true;
          reached_.push_back(child);
        }
      }
      if (g_.region(r).last != previous)
        fail(2, "the list of region " + std::to_string(r) + " does not end with the node that it names as last");
    }
    for (tsr_id n = 0; n < g_.num_nodes(); ++n)
      if (g_.node(n).alive && order_[n] == 0)
        fail(3, "node " + std::to_string(n) + " (" + g_.node(n).op + ") is alive, but in no region of the graph");
    if (count != g_.num_live_nodes())
      fail(3, "there are " + std::to_string(count) + " nodes, the graph counts " + std::to_string(g_.num_live_nodes()));
  }

  // For verify_nodes: positions in the one region; the list itself is the business of the whole-graph check.
  void number_region(tsr_id r) {
    if (numbered_[r]) return;
    numbered_[r] = true;
    uint32_t count = 0;
    for (const tsr_id n : nodes_of(g_, r)) order_[n] = ++count;
  }

  // --------------------------------------------------------------------------------------------- values (V06 .. V15)
  void value(tsr_id id, tsr_id region) {
    const tsr_value& v = g_.value(id);
    if (v.region != region)
      fail(8,
           "value " + name(id) + " names region " + std::to_string(v.region) + ", but is defined in " + std::to_string(region));
    if (!v.name || !*v.name) fail(10, "value " + std::to_string(id) + " has no name");
    if (g_.find_value(v.name) != id) fail(10, "the name " + name(id) + " does not lead to its value");
    type(id);
  }

  void result(tsr_id n, uint32_t i) {
    const tsr_id id = g_.node(n).results[i];
    const tsr_value& v = g_.value(id);
    if (v.def_node != n || v.def_index != i)
      fail(8, n, "its result " + name(id) + " names another node or index as its definition");
    value(id, g_.node(n).parent);
    if (v.input_kind != TSR_INPUT_NONE) fail(12, n, "its result " + name(id) + " claims to be an input");
    if (v.writeback != TSR_NONE) fail(13, n, "its result " + name(id) + " claims to be written back");
    if (v.donated) fail(14, n, "its result " + name(id) + " is donated");
  }

  void region_values(tsr_id r) {
    const tsr_region& region = g_.region(r);
    for (uint32_t i = 0; i < region.num_inputs; ++i) {
      const tsr_value& v = g_.value(region.inputs[i]);
      if (v.def_node != TSR_NONE || v.def_index != i)
        fail(8, "input " + name(region.inputs[i]) + " names a node or another index as its definition");
      value(region.inputs[i], r);
      const bool block = v.input_kind == TSR_INPUT_BLOCK;
      if (v.input_kind == TSR_INPUT_NONE || v.input_kind > TSR_INPUT_BLOCK || block != (r != 0))
        fail(12, "input " + name(region.inputs[i]) + " is not of a kind that region " + std::to_string(r) + " can have");
    }
    for (const tsr_id n : nodes_of(g_, r))
      for (uint32_t i = 0; i < g_.node(n).num_results; ++i) result(n, i);
  }

  void inputs() const {
    const tsr_region& body = g_.region(0);
    std::unordered_set<std::string_view> keys;
    std::unordered_set<uint32_t> written;
    for (uint32_t i = 0; i < body.num_inputs; ++i) {
      const tsr_id id = body.inputs[i];
      const tsr_value& v = g_.value(id);
      if (v.input_kind == TSR_INPUT_STATE) {
        if (v.writeback >= body.num_outputs) fail(13, "state " + name(id) + " is written back with no output of the graph");
        if (!written.insert(v.writeback).second)
          fail(13, "state " + name(id) + " is written back with the output of another state");
        const tsr_type &have = *g_.value(body.outputs[v.writeback]).type, &want = *v.type;
        bool agree = have.dtype == want.dtype && have.rank == want.rank;
        for (uint32_t k = 0; agree && k < want.rank; ++k)
          agree = sizes_.compare(TSR_EQ, have.sizes[k], want.sizes[k]) == TSR_TRUE;
        if (!agree)
          fail(13, "state " + name(id) + " of type " + print_type(g_, want) + " is written back with an output of type " +
                       print_type(g_, have));
        if (v.key && !keys.insert(v.key).second) fail(15, "two states have the key \"" + std::string(v.key) + "\"");
      } else if (v.writeback != TSR_NONE) {
        fail(13, "input " + name(id) + " is written back, but is no state");
      }
      if (v.donated && v.input_kind == TSR_INPUT_PARAM) fail(14, "param " + name(id) + " is donated");
    }
    for (const tsr_id r : reached_) {
      if (r == 0) continue;
      for (uint32_t i = 0; i < g_.region(r).num_inputs; ++i) {
        const tsr_value& v = g_.value(g_.region(r).inputs[i]);
        if (v.writeback != TSR_NONE) fail(13, "the region's input " + name(g_.region(r).inputs[i]) + " is written back");
        if (v.donated) fail(14, "the region's input " + name(g_.region(r).inputs[i]) + " is donated");
      }
    }
  }

  void output_names() const {
    std::unordered_set<std::string_view> names;
    for (uint32_t i = 0; i < g_.region(0).num_outputs; ++i) {
      const char* name = g_.given_output_name(i);
      if (!name) continue;
      if (!*name) fail(27, "the name of output " + std::to_string(i) + " is empty");
      if (!names.insert(name).second) fail(27, "two outputs are called '" + std::string(name) + "'");
    }
  }

  void operands_in_order(tsr_id n) {
    const tsr_node& x = g_.node(n);
    for (uint32_t i = 0; i < x.num_operands; ++i) {
      if (x.operands[i] == TSR_NONE) continue;
      const tsr_value& v = g_.value(x.operands[i]);
      if (v.region != x.parent)
        fail(7, n, "operand " + std::to_string(i) + ", " + name(x.operands[i]) + ", belongs to another region");
      if (v.def_node == TSR_NONE) continue;
      if (order_[v.def_node] >= order_[n])
        fail(6, n, "operand " + std::to_string(i) + ", " + name(x.operands[i]) + ", is defined after it");
    }
  }

  void outputs(tsr_id r) const {
    const tsr_region& x = g_.region(r);
    for (uint32_t i = 0; i < x.num_outputs; ++i)
      if (g_.value(x.outputs[i]).region != r)
        fail(11, "output " + std::to_string(i) + " of region " + std::to_string(r) + ", " + name(x.outputs[i]) +
                     ", belongs to another region");
  }

  // Does every operand and output stand in the uses of its value, where the graph says, and nothing else? Operands at different
  // places have different entries, so that equal numbers are all that is left to compare. This walks the graph in order;
  // each_use, which looks up the user of every use, says what is wrong.
  bool uses_match() const {
    size_t named = 0, listed = 0;
    const auto stands = [&](tsr_id v, uint32_t at, tsr_use use) {
      ++named;
      const auto uses = g_.uses(v);
      return at < uses.size() && uses[at].node == use.node && uses[at].operand == use.operand;
    };
    const auto list = [&](tsr_id v) {
      listed += g_.uses(v).size();
      return g_.value(v).num_uses == g_.uses(v).size();
    };
    for (const tsr_id r : reached_) {
      const tsr_region& region = g_.region(r);
      for (uint32_t i = 0; i < region.num_inputs; ++i)
        if (!list(region.inputs[i])) return false;
      for (uint32_t i = 0; i < region.num_outputs; ++i)
        if (!stands(region.outputs[i], g_.output_use_index(r, i), {TSR_NONE, i})) return false;
      for (const tsr_id n : nodes_of(g_, r)) {
        const tsr_node& x = g_.node(n);
        for (uint32_t i = 0; i < x.num_operands; ++i)
          if (x.operands[i] != TSR_NONE && !stands(x.operands[i], g_.use_index(n, i), {n, i})) return false;
        for (uint32_t i = 0; i < x.num_results; ++i)
          if (!list(x.results[i])) return false;
      }
    }
    return named == listed;
  }

  void each_use() {
    for (const tsr_id r : reached_) {
      for (uint32_t i = 0; i < g_.region(r).num_inputs; ++i) uses_of(g_.region(r).inputs[i]);
      for (const tsr_id n : nodes_of(g_, r))
        for (uint32_t i = 0; i < g_.node(n).num_results; ++i) uses_of(g_.node(n).results[i]);
    }
  }

  // Each use in the table is real and listed once. That none is missing is has_use's part, or follows from the total.
  void uses_of(tsr_id v) {
    const auto uses = g_.uses(v);
    if (g_.value(v).num_uses != uses.size())
      fail(9,
           name(v) + " counts " + std::to_string(g_.value(v).num_uses) + " uses, the table has " + std::to_string(uses.size()));
    scratch_.clear();
    for (const tsr_use& u : uses) {
      bool real;
      if (u.node == TSR_NONE) {
        const tsr_region& r = g_.region(g_.value(v).region);
        real = u.operand < r.num_outputs && r.outputs[u.operand] == v;
      } else {
        real = u.node < g_.num_nodes() && g_.node(u.node).alive && u.operand < g_.node(u.node).num_operands &&
               g_.node(u.node).operands[u.operand] == v;
      }
      if (!real) fail(9, "the table names a use of " + name(v) + " that is not there");
      scratch_.push_back(uint64_t{u.node} << 32 | u.operand);
    }
    std::sort(scratch_.begin(), scratch_.end());
    if (std::adjacent_find(scratch_.begin(), scratch_.end()) != scratch_.end())
      fail(9, "the table names one use of " + name(v) + " twice");
    if (reached_.empty()) return;
    // All uses by nodes and outputs, counted once.
    if (expected_.empty()) {
      expected_.assign(g_.num_values(), 0);
      for (const tsr_id r : reached_) {
        for (uint32_t i = 0; i < g_.region(r).num_outputs; ++i) ++expected_[g_.region(r).outputs[i]];
        for (const tsr_id n : nodes_of(g_, r))
          for (uint32_t i = 0; i < g_.node(n).num_operands; ++i)
            if (g_.node(n).operands[i] != TSR_NONE) ++expected_[g_.node(n).operands[i]];
      }
    }
    if (expected_[v] != uses.size())
      fail(9, name(v) + " has " + std::to_string(expected_[v]) + " uses, the table has " + std::to_string(uses.size()));
  }

  void has_use(tsr_id n, uint32_t i) const {
    const auto uses = g_.uses(g_.node(n).operands[i]);
    // The graph says where: values with very many users stay cheap.
    const uint32_t at = g_.use_index(n, i);
    if (at < uses.size() && uses[at].node == n && uses[at].operand == i) return;
    fail(9, n, "operand " + std::to_string(i) + " is missing in the uses of " + name(g_.node(n).operands[i]));
  }

  // ------------------------------------------------------------------------------------------ types (V21 .. V24)
  template <class F>
  void dims_exist(std::span<const tsr_dim> dims, F&& where) const {
    for (const tsr_dim d : dims)
      if (!known(d, sizes_.exprs().size())) fail(24, where() + " names an expression that does not exist");
  }

  void type(tsr_id id) {
    const tsr_type& t = *g_.value(id).type;
    const tsr_type*& same = sound_types_[reinterpret_cast<uintptr_t>(&t) / alignof(std::max_align_t) % sound_types_.size()];
    if (same == &t) return;
    if (t.rank <= kMaxRank) {
      dims_exist({t.sizes, t.rank}, [&] { return "the type of " + name(id); });
      if (t.strides) dims_exist({t.strides, t.rank}, [&] { return "the strides of " + name(id); });
    }
    tsr_type dense = t;
    dense.strides = nullptr;
    if (const std::string problem = type_problem(&sizes_, dense); !problem.empty())
      fail(22, "the type of " + name(id) + " is impossible: " + problem);
    if (const std::string problem = type_problem(&sizes_, t); !problem.empty())
      fail(23, "the strides of " + name(id) + " are impossible: " + problem);
    same = &t;
  }

  void constant(tsr_id n, const tsr_attr& a) const {
    auto bad = [&](const char* why) { fail(21, n, "the constant '" + std::string(a.name) + "' " + why); };
    if (!a.tensor) bad("has no tensor");
    const tsr_tensor& t = *a.tensor;
    const tsr_type type{t.dtype, t.rank, t.sizes, nullptr, 0, 0};
    if (t.rank > 0 && (!t.sizes || !t.strides)) bad("lacks sizes or strides");
    if (!is_valid_dtype(t.dtype) || t.rank > kMaxRank) bad("has no valid type");
    for (uint32_t i = 0; i < t.rank; ++i)
      if (t.sizes[i] < 0) bad("has a size that is negative or symbolic");
    if (!type_problem(nullptr, type).empty()) bad("is too large");
    int64_t stride = 1;
    bool empty = false;
    for (uint32_t i = t.rank; i-- > 0;) {
      if (t.sizes[i] > 1 && t.strides[i] != stride) bad("is not row-major");
      stride *= std::max<int64_t>(t.sizes[i], 1);
      empty |= t.sizes[i] == 0;
    }
    if (!t.data && !empty) bad("has no data");
    if (t.device != 0) bad("is not in host memory");
    if (!(t.flags & TSR_TENSOR_CONTIGUOUS)) bad("is not marked as contiguous");
  }

  // ---------------------------------------------------------------------------------------------- nodes (V16 .. V20)
  void against_record(tsr_id n) const {
    const tsr_node& x = g_.node(n);
    const OpRecord* record = x.op ? g_.ops().find(x.op) : nullptr;
    if (!record)
      fail(16, "node " + std::to_string(n) + ": the op '" + std::string(x.op ? x.op : "") + "' is in no loaded op set");
    if (x.op_index != record->index) fail(16, n, "its op index is not that of " + record->name);

    // Attributes are kept as complete_attrs made them, so comparing with the declarations is enough for the order.
    if (x.num_attrs != record->attrs.size())
      fail(17, n, "it has " + std::to_string(x.num_attrs) + " attributes, expected " + std::to_string(record->attrs.size()));
    for (uint32_t i = 0; i < x.num_attrs; ++i) {
      const tsr_attr& a = x.attrs[i];
      const AttrDecl& d = record->attrs[i];
      if (!a.name || d.name != a.name) fail(17, n, "attribute " + std::to_string(i) + " should be '" + d.name + "'");
      if (a.kind != d.kind) fail(17, n, "attribute '" + d.name + "' is of another kind than the record declares");
      if (a.kind == TSR_ATTR_TENSOR) constant(n, a);
      const auto where = [&] { return "attribute '" + d.name + "' of " + g_.describe(n); };
      if (a.kind == TSR_ATTR_DIM) dims_exist({&a.i, 1}, where);
      if (a.kind == TSR_ATTR_DIMS) dims_exist({a.ints, a.count}, where);
    }
    try {
      complete_attrs(*record, {x.attrs, x.num_attrs});
    } catch (const Error& e) {
      fail(17, n, e.message());
    }
    if (x.num_regions > 0 && !record->has(kControl)) fail(20, n, "it owns regions, but " + record->name + " is no control op");
    const CallView view(g_, n);
    std::vector<const tsr_type*> stored(x.num_results);
    for (uint32_t i = 0; i < x.num_results; ++i) stored[i] = g_.value(x.results[i]).type;
    try {
      check_result_types(writable_, *record, view.call(), stored, Prove::kStrict);
    } catch (const Error& e) {
      fail(e.code() == "TSR-I039" ? 19 : 18, n, e.message());
    }
  }

  const Graph& g_;
  Graph& writable_;
  const Sizes& sizes_;
  const Sizes::Checkpoint before_;
  bool printable_ = false;          // ids and values are sound enough to name them
  std::vector<tsr_id> reached_;     // regions, parents before children; empty: only some nodes are checked
  std::vector<uint32_t> order_;     // by node: position, from 1
  std::vector<bool> numbered_;      // by region
  std::vector<uint32_t> expected_;  // by value: uses
  std::vector<uint64_t> scratch_;
  std::array<const tsr_type*, 64> sound_types_{};  // types are interned: most values share one that was checked before
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).whole(); }
void verify_nodes(const Graph& graph, std::span<const tsr_id> nodes) { Verifier(graph).some(nodes); }

}  // namespace tessera::core
