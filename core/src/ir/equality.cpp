// SPDX-License-Identifier: Apache-2.0
#include "ir/equality.hpp"

#include <bit>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "ir/dense.hpp"
#include "ir/graph.hpp"

namespace tessera::core {
namespace {

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

class Comparison {
 public:
  Comparison(const Graph& a, const Graph& b, bool computation = false, bool same_callbacks = false)
      : a_(a), b_(b), computation_(computation), same_callbacks_(same_callbacks), values_(a.num_values(), TSR_NONE) {}

  std::string run() {
    if (!computation_ && std::string_view(a_.tables().name) != b_.tables().name) return "the graphs' names";
    const auto &sa = a_.sizes().symbols(), &sb = b_.sizes().symbols();
    if (sa.size() != sb.size()) return "the number of symbols";
    for (size_t i = 0; i < sa.size(); ++i)
      if ((!computation_ && (std::strcmp(sa[i].name, sb[i].name) != 0 || sa[i].hint != sb[i].hint)) || sa[i].min != sb[i].min ||
          sa[i].max != sb[i].max || sa[i].unbacked != sb[i].unbacked)
        return "symbol " + std::string(sa[i].name);
    canonical_dims();
    const auto &xa = a_.sizes().assumptions(), &xb = b_.sizes().assumptions();
    if (xa.size() != xb.size()) return "the number of assumptions";
    for (size_t i = 0; i < xa.size(); ++i)
      if (xa[i].relation != xb[i].relation || !dim(xa[i].a, xb[i].a) || !dim(xa[i].b, xb[i].b) ||
          (!computation_ && xa[i].why != xb[i].why))
        return "assumption " + std::to_string(i);
    if (region(0, 0) && !computation_)
      for (uint32_t i = 0; i < a_.region(0).num_outputs; ++i)
        if (!text(a_.output_name(i), b_.output_name(i))) return "the name of output " + std::to_string(i);
    return found_;
  }

 private:
  // Equal expressions of the two graphs get equal numbers: ids ascend from operands to users, so one sweep each does.
  void canonical_dims() {
    std::unordered_map<std::string, uint32_t> known;
    auto number = [&](const Sizes& s, std::vector<uint32_t>& out) {
      for (const tsr_dim_expr& e : s.exprs()) {
        auto side = [&](tsr_dim d) { return TSR_DIM_IS_EXPR(d) ? TSR_DIM_OF_EXPR(out[TSR_DIM_EXPR_ID(d)]) : d; };
        const int64_t key[] = {e.op, e.symbol, side(e.lhs), side(e.rhs)};
        out.push_back(
            known.try_emplace(std::string(reinterpret_cast<const char*>(key), sizeof key), static_cast<uint32_t>(known.size()))
                .first->second);
      }
    };
    number(a_.sizes(), dims_a_);
    number(b_.sizes(), dims_b_);
  }

  bool dim(tsr_dim x, tsr_dim y) const {
    if (!TSR_DIM_IS_EXPR(x) || !TSR_DIM_IS_EXPR(y)) return x == y;
    return dims_a_[TSR_DIM_EXPR_ID(x)] == dims_b_[TSR_DIM_EXPR_ID(y)];
  }
  bool type(const tsr_type& x, const tsr_type& y) const {
    if (x.dtype != y.dtype || x.rank != y.rank || x.device != y.device) return false;
    if (x.rank > 0 && (x.strides == nullptr) != (y.strides == nullptr)) return false;
    for (uint32_t i = 0; i < x.rank; ++i)
      if (!dim(x.sizes[i], y.sizes[i]) || (x.strides && !dim(x.strides[i], y.strides[i]))) return false;
    return true;
  }
  static bool text(const char* x, const char* y) { return x == y || (x && y && std::strcmp(x, y) == 0); }

  bool fail(std::string what) {
    if (found_.empty()) found_ = std::move(what);
    return false;
  }

  bool define(tsr_id x, tsr_id y) {
    const tsr_value &v = a_.value(x), &w = b_.value(y);
    values_[x] = y;
    if (!computation_ && !text(v.name, w.name)) return fail("the names %" + std::string(v.name) + " and %" + w.name);
    if (!type(*v.type, *w.type)) return fail("the type of %" + std::string(v.name));
    if (v.input_kind != w.input_kind || v.writeback != w.writeback || v.donated != w.donated ||
        (!computation_ && !text(v.key, w.key)))
      return fail("the input %" + std::string(v.name));
    return true;
  }
  bool use(tsr_id x, tsr_id y) const { return x == TSR_NONE || y == TSR_NONE ? x == y : values_[x] == y; }

  bool region(tsr_id ra, tsr_id rb) {
    const tsr_region &x = a_.region(ra), &y = b_.region(rb);
    if (x.num_inputs != y.num_inputs) return fail("the number of inputs");
    for (uint32_t i = 0; i < x.num_inputs; ++i)
      if (!define(x.inputs[i], y.inputs[i])) return false;
    tsr_id n = x.first, m = y.first;
    for (; n != TSR_NONE && m != TSR_NONE; n = a_.node(n).next, m = b_.node(m).next)
      if (!node(n, m)) return false;
    if (n != m) return fail("the number of nodes");
    if (x.num_outputs != y.num_outputs) return fail("the number of outputs");
    for (uint32_t i = 0; i < x.num_outputs; ++i)
      if (!use(x.outputs[i], y.outputs[i])) return fail("output " + std::to_string(i));
    return true;
  }

  bool node(tsr_id na, tsr_id nb) {
    const tsr_node &x = a_.node(na), &y = b_.node(nb);
    const std::string where = a_.describe(na);
    if (!text(x.op, y.op)) return fail("the op of " + where);
    if (x.num_operands != y.num_operands || x.num_results != y.num_results || x.num_regions != y.num_regions ||
        x.num_attrs != y.num_attrs)
      return fail("the operands, results, attributes or regions of " + where);
    for (uint32_t i = 0; i < x.num_operands; ++i)
      if (!use(x.operands[i], y.operands[i])) return fail("operand " + std::to_string(i) + " of " + where);
    for (uint32_t i = 0; i < x.num_attrs; ++i)
      if (!text(x.attrs[i].name, y.attrs[i].name) ||
          (!(same_callbacks_ && std::strcmp(x.attrs[i].name, "callback") == 0) &&
           !same_attr(x.attrs[i], y.attrs[i], [this](tsr_dim p, tsr_dim q) { return dim(p, q); })))
        return fail("attribute " + std::string(x.attrs[i].name) + " of " + where);
    if (!computation_ && (!text(x.loc.file, y.loc.file) || x.loc.line != y.loc.line || x.loc.column != y.loc.column))
      return fail("the location of " + where);
    if (x.marks != y.marks) return fail("the marks of " + where);
    for (uint32_t i = 0; i < x.num_regions; ++i)
      if (!region(x.regions[i], y.regions[i])) return false;
    for (uint32_t i = 0; i < x.num_results; ++i)
      if (!define(x.results[i], y.results[i])) return false;
    return true;
  }

  const Graph &a_, &b_;
  const bool computation_, same_callbacks_;
  std::vector<tsr_id> values_;
  std::vector<uint32_t> dims_a_, dims_b_;
  std::string found_;
};

}  // namespace

bool same_attr(const tsr_attr& a, const tsr_attr& b, const std::function<bool(tsr_dim, tsr_dim)>& same_dim) {
  if (a.kind != b.kind || a.count != b.count) return false;
  switch (a.kind) {
    case TSR_ATTR_FLOAT: return same_bits(a.f, b.f);
    case TSR_ATTR_STRING: return std::strcmp(a.s, b.s) == 0;
    case TSR_ATTR_DIM: return same_dim(a.i, b.i);
    case TSR_ATTR_INTS:
    case TSR_ATTR_DIMS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (a.kind == TSR_ATTR_INTS ? a.ints[i] != b.ints[i] : !same_dim(a.ints[i], b.ints[i])) return false;
      return true;
    case TSR_ATTR_FLOATS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (!same_bits(a.floats[i], b.floats[i])) return false;
      return true;
    case TSR_ATTR_STRINGS:
      for (uint32_t i = 0; i < a.count; ++i)
        if (std::strcmp(a.strings[i], b.strings[i]) != 0) return false;
      return true;
    case TSR_ATTR_TENSOR: return same_constant(*a.tensor, *b.tensor);
    default: return a.i == b.i;
  }
}

bool same_attr(const tsr_attr& a, const tsr_attr& b) {
  return same_attr(a, b, [](tsr_dim x, tsr_dim y) { return x == y; });
}

std::string difference(const Graph& a, const Graph& b) { return Comparison(a, b).run(); }
bool equal(const Graph& a, const Graph& b) { return difference(a, b).empty(); }
bool same_computation(const Graph& a, const Graph& b, bool same_callbacks) {
  return Comparison(a, b, true, same_callbacks).run().empty();
}

uint64_t computation_hash(const Graph& g) {
  uint64_t h = 0x9E3779B97F4A7C15u;
  const auto mix = [&](uint64_t x) { h = (h ^ x) * 0xBF58476D1CE4E5B9u, h ^= h >> 29; };
  const auto type = [&](const tsr_type& t) {
    mix(t.dtype | uint64_t{t.rank} << 32);
    for (uint32_t i = 0; i < t.rank; ++i) mix(TSR_DIM_IS_EXPR(t.sizes[i]) ? ~uint64_t{0} : static_cast<uint64_t>(t.sizes[i]));
  };
  const tsr_region& body = g.region(0);
  for (uint32_t i = 0; i < body.num_inputs; ++i) type(*g.value(body.inputs[i]).type);
  for (const tsr_id n : nodes_of(g, 0)) {
    const tsr_node& node = g.node(n);
    mix(std::hash<std::string_view>()(node.op));
    mix(node.num_operands | uint64_t{node.num_results} << 32);
    if (node.num_results > 0) type(*g.value(node.results[0]).type);
  }
  mix(body.num_outputs);
  return h;
}

}  // namespace tessera::core
