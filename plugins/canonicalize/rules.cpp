// SPDX-License-Identifier: Apache-2.0
// The rewrite rules, one per line: name, op, when, becomes. All of them keep every bit of the result, which is why x + 0.0 is
// not here for floats (it turns -0.0 into 0.0), nor a sum over no axes (which starts from 0.0), and x - x is only here for
// integers (it is NaN for NaN and infinity). Which of several NaNs a result is, IEEE 754 leaves open, and so do the rules.
#include "rules.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace tessera::passes {
namespace {

using M = const Match&;
using V = sdk::Value;
using sdk::attr_dims, sdk::attr_ints;

V first(M m) { return m.in(0); }
V second(M m) { return m.in(1); }
V inner(M m) { return m.def().operand(0); }

bool constant_left(M m) {
  return m.n.num_operands() == 2 && m.is_constant(0) && !m.is_constant(1) && m.g.has_trait(m.n.raw().op, "commutative");
}
V swap(M m) {
  const V a = m.in(0), b = m.in(1);
  m.g.set_operand(m.n, 0, b);
  m.g.set_operand(m.n, 1, a);
  return m.g.none();
}

bool twice(M m) {
  return m.def() && m.def().raw().op == m.n.raw().op && m.def().num_operands() == 1 && m.def().attrs().empty();
}
bool is_involution(M m) {
  return m.n.num_operands() == 1 && twice(m) && m.g.has_trait(m.n.raw().op, "involution") && m.keeps_type(inner(m));
}
bool is_idempotent(M m) {
  return m.n.num_operands() == 1 && twice(m) && m.g.has_trait(m.n.raw().op, "idempotent") && m.in_keeps_type();
}
bool same_twice(M m) { return m.same(0, 1) && m.in_keeps_type(); }

V transpose_chain(M m) {
  const auto outer = m.n.attr("perm").as_ints(), inside = m.def().attr("perm").as_ints();
  const int64_t rank = static_cast<int64_t>(outer.size());
  std::vector<int64_t> perm;
  for (int64_t p : outer) perm.push_back(inside[static_cast<size_t>(p < 0 ? p + rank : p)]);
  return m.g.op(m.here(), "transpose", {inner(m)}, {attr_ints("perm", perm)});
}
// By a matrix that was transposed: linear takes it as it was.
bool matmul_transposed(M m) {
  return m.from(1, "transpose") && m.in(1).type().rank() == 2 && !identity_perm(m.def(1).attr("perm").as_ints());
}
// Of a matrix that was transposed: a contraction takes it as it was. A gradient of a weight is one.
bool turned(M m, uint32_t i) {
  return m.from(i, "transpose") && m.in(i).type().rank() == 2 && !identity_perm(m.def(i).attr("perm").as_ints());
}
bool matmul_of_transposed(M m) { return turned(m, 0) && m.in(1).type().rank() == 2; }
V contraction(M m) {
  const bool both = turned(m, 1);
  const std::array<int64_t, 1> left{0}, right{both ? 1 : 0};
  return m.g.op(m.here(), "dot_general", {m.def(0).operand(0), both ? m.def(1).operand(0) : m.in(1)},
                {attr_ints("lhs_contract", left), attr_ints("rhs_contract", right)});
}
V linear(M m) { return m.g.op(m.here(), "linear", {m.in(0), m.def(1).operand(0), m.g.none()}); }
// A reshape that puts leading dimensions together, a transpose of those behind them, and one that takes them apart again: a
// transpose. Exporters write the keys of attention so; as reshapes, the middle one would copy.
bool transposes_behind_merged(M m) {
  if (!m.from(0, "transpose") || !inner(m).def() || !inner(m).def().is("reshape")) return false;
  const V merged = inner(m), x = merged.def().operand(0), turned = m.in();
  const auto from = x.type().sizes(), through = merged.type().sizes(), to = m.out().type().sizes(),
             middle = turned.type().sizes();
  const auto perm = m.def().attr("perm").as_ints();
  if (from.size() != to.size() || from.size() <= through.size() || through.size() < 2 || perm[0] != 0) return false;
  const size_t lead = from.size() - through.size() + 1;  // dimensions that become the first
  return std::equal(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(lead), to.begin()) &&
         std::equal(from.begin() + static_cast<std::ptrdiff_t>(lead), from.end(), through.begin() + 1) &&
         std::equal(to.begin() + static_cast<std::ptrdiff_t>(lead), to.end(), middle.begin() + 1);
}
V transpose_unmerged(M m) {
  const V merged = inner(m), x = merged.def().operand(0);
  const auto inside = m.def().attr("perm").as_ints();
  const auto rank = static_cast<int64_t>(inside.size());
  const int64_t lead = static_cast<int64_t>(x.type().rank()) - rank + 1;
  std::vector<int64_t> perm;
  for (int64_t d = 0; d < lead; ++d) perm.push_back(d);
  for (int64_t d = 1; d < rank; ++d) {
    const int64_t p = inside[static_cast<size_t>(d)];
    perm.push_back((p < 0 ? p + rank : p) - 1 + lead);
  }
  return m.g.op(m.here(), "transpose", {x}, {attr_ints("perm", perm)});
}
V reshape_chain(M m) { return m.g.op(m.here(), "reshape", {inner(m)}, {*m.n.attr("shape").p}); }
V broadcast_chain(M m) { return m.g.op(m.here(), "broadcast_to", {inner(m)}, {*m.n.attr("shape").p}); }
bool cast_back(M m) {
  return m.from(0, "cast") && m.keeps_type(inner(m)) && widens(inner(m).type().dtype(), m.in().type().dtype());
}
bool cast_through(M m) {
  return m.from(0, "cast") && widens(inner(m).type().dtype(), m.in().type().dtype()) &&
         widens(m.in().type().dtype(), m.dtype());
}
V cast_direct(M m) { return m.g.op(m.here(), "cast", {inner(m)}, {*m.n.attr("dtype").p}); }
V zero(M m) {
  std::vector<tsr_dim> shape(m.out().type().sizes().begin(), m.out().type().sizes().end());
  const int64_t bits = 0;
  tsr_tensor t{};
  t.data = const_cast<int64_t*>(&bits);
  t.dtype = m.dtype();
  const V v = m.g.op(m.here(), "full", {m.g.constant(m.here(), t)}, {attr_dims("shape", shape)});
  m.g.set_type(v, *m.out().type().p);  // a constant knows no device
  return v;
}
bool one_operand(M m) { return m.n.num_operands() == 1 && m.in_keeps_type(); }
// Parts whose last two dimensions were put together, some behind a transposition, as the gradients of attention's heads: they
// are joined before that. A kernel then copies runs as long as the last dimension, where it would ask of each element of the
// joined one which part it is of, and of which head.
bool joins_merged(M m) {
  const size_t last = m.out().type().rank() - 1;
  if (m.n.attr("axis").as_int() != static_cast<int64_t>(last) && m.n.attr("axis").as_int() != -1) return false;
  bool turned = false;
  tsr_dim run = 1;
  for (uint32_t i = 0; i < m.n.num_operands(); ++i) {
    if (!m.from(i, "reshape")) return false;
    const V x = m.def(i).operand(0);
    const auto from = x.type().sizes(), to = m.in(i).type().sizes();
    if (from.size() != to.size() + 1 || !std::equal(to.begin(), to.end() - 1, from.begin())) return false;
    if (i == 0) run = from[last + 1];
    if (from[last + 1] != run) return false;
    turned = turned || (x.def() && x.def().is("transpose"));
  }
  return turned && m.n.num_operands() > 1;
}
V joined_merged(M m) {
  std::vector<V> parts;
  for (uint32_t i = 0; i < m.n.num_operands(); ++i) parts.push_back(m.def(i).operand(0));
  const tsr_attr axis = sdk::attr_int("axis", m.out().type().rank() - 1);
  const V joined = m.g.create(m.here(), "concat", parts, {&axis, 1}).result();
  return m.g.op(m.here(), "reshape", {joined}, {attr_dims("shape", m.out().type().sizes())});
}
bool empty_axes(M m) { return m.n.attr("axes").as_ints().empty() && m.in_keeps_type(); }
bool zero_pads(M m) {
  for (const char* name : {"low", "high", "interior"})
    for (int64_t x : m.n.attr(name).as_ints())
      if (x != 0) return false;
  return m.in_keeps_type();
}
bool whole_slice(M m) {
  for (int64_t s : m.n.attr("starts").as_ints())
    if (s != 0) return false;
  for (int64_t s : m.n.attr("strides").as_ints())
    if (s != 1) return false;
  return m.in_keeps_type();  // equal sizes from start 0 by step 1: everything
}

// A part of a tensor of one number that is overwritten, at a place that is known: what is around it is padding.
struct Around {
  std::vector<tsr_dim> low, high;
};
std::optional<Around> around_update(M m) {
  if (!m.from(0, "full") || !m.def().operand(0).def() || !m.def().operand(0).def().is("constant")) return std::nullopt;
  const auto whole = m.in(0).type().sizes(), part = m.in(1).type().sizes();
  Around out;
  for (uint32_t d = 0; d < whole.size(); ++d) {
    int64_t low = 0, high = 0;
    if (whole[d] != part[d]) {
      if (TSR_DIM_IS_EXPR(whole[d]) || TSR_DIM_IS_EXPR(part[d]) || !m.is_constant(2 + d)) return std::nullopt;
      const tsr_tensor& start = m.def(2 + d).attr("value").as_tensor();
      const int64_t room = whole[d] - part[d];
      low = std::clamp<int64_t>(load_as<int64_t>(start.dtype, start.data, 0), 0, room);
      high = room - low;
    }
    out.low.push_back(low), out.high.push_back(high);
  }
  return out;
}
V padded(M m) {
  const Around a = *around_update(m);
  return m.g.op(m.here(), "pad", {m.in(1), m.def().operand(0)}, {attr_dims("low", a.low), attr_dims("high", a.high)});
}

// The axis of a gather, counted from the front, and its index where that is one number known to lie inside; else no axis.
struct One {
  int64_t axis = -1, index = 0;
};
One one_index(M m) {
  if (!m.is_constant(1)) return {};
  const tsr_tensor& t = m.def(1).attr("value").as_tensor();
  const sdk::Type x = m.in().type();
  int64_t axis = m.n.attr("axis").as_int();
  if (axis < 0) axis += x.rank();
  if (t.rank != 0 || TSR_DIM_IS_EXPR(x.size(static_cast<int>(axis)))) return {};
  const auto index = load_as<int64_t>(t.dtype, t.data, 0);
  return index >= 0 && index < x.size(static_cast<int>(axis)) ? One{axis, index} : One{};
}
V slice_one(M m) {
  const auto [axis, index] = one_index(m);
  const auto sizes = m.in().type().sizes();
  std::vector<tsr_dim> starts(sizes.size(), 0), limits(sizes.begin(), sizes.end());
  const std::vector<int64_t> strides(sizes.size(), 1), axes = {axis};
  starts[static_cast<size_t>(axis)] = index, limits[static_cast<size_t>(axis)] = index + 1;
  const V slice = m.g.op(m.here(), "slice", {first(m)},
                         {attr_dims("starts", starts), attr_dims("limits", limits), attr_ints("strides", strides)});
  return m.g.op(m.here(), "squeeze", {slice}, {attr_ints("axes", axes)});
}

// clang-format off
constexpr Rule kRules[] = {
  {"constant-right",      nullptr,        constant_left,                                                           swap},
  {"involution",          nullptr,        is_involution,                                                           inner},
  {"idempotent",          nullptr,        is_idempotent,                                                           first},

  {"add-int-zero",        "add",          [](M m) { return m.is_int() && m.is_splat(1, 0) && m.in_keeps_type(); }, first},
  {"add-negative-zero",   "add",          [](M m) { return m.is_splat(1, -0.0) && m.in_keeps_type(); },            first},
  {"sub-zero",            "sub",          [](M m) { return m.is_splat(1, 0) && m.in_keeps_type(); },               first},
  {"sub-int-self",        "sub",          [](M m) { return m.is_int() && m.same(0, 1); },                          zero},
  {"mul-one",             "mul",          [](M m) { return m.is_splat(1, 1) && m.in_keeps_type(); },               first},
  {"mul-int-zero",        "mul",          [](M m) { return m.is_int() && m.is_splat(1, 0); },                      zero},
  {"div-one",             "div",          [](M m) { return m.is_splat(1, 1) && m.in_keeps_type(); },               first},
  {"pow-one",             "pow",          [](M m) { return m.is_splat(1, 1) && m.in_keeps_type(); },               first},
  {"xor-int-self",        "bitwise_xor",  [](M m) { return m.is_int() && m.same(0, 1); },                          zero},
  {"xor-int-zero",        "bitwise_xor",  [](M m) { return m.is_int() && m.is_splat(1, 0) && m.in_keeps_type(); }, first},
  {"or-int-zero",         "bitwise_or",   [](M m) { return m.is_int() && m.is_splat(1, 0) && m.in_keeps_type(); }, first},
  {"and-int-zero",        "bitwise_and",  [](M m) { return m.is_int() && m.is_splat(1, 0); },                      zero},
  {"shift-left-zero",     "shift_left",   [](M m) { return m.is_splat(1, 0) && m.in_keeps_type(); },               first},
  {"shift-right-zero",    "shift_right",  [](M m) { return m.is_splat(1, 0) && m.in_keeps_type(); },               first},
  {"and-self",            "bitwise_and",  same_twice,                                                              first},
  {"or-self",             "bitwise_or",   same_twice,                                                              first},
  {"logical-and-self",    "logical_and",  same_twice,                                                              first},
  {"logical-or-self",     "logical_or",   same_twice,                                                              first},
  {"logical-and-true",    "logical_and",  [](M m) { return m.is_splat(1, 1) && m.in_keeps_type(); },               first},
  {"logical-or-false",    "logical_or",   [](M m) { return m.is_splat(1, 0) && m.in_keeps_type(); },               first},
  {"maximum-self",        "maximum",      same_twice,                                                              first},
  {"minimum-self",        "minimum",      same_twice,                                                              first},
  {"select-true",         "select",       [](M m) { return m.is_splat(0, 1) && m.in_keeps_type(1); },              second},
  {"select-false",        "select",       [](M m) { return m.is_splat(0, 0) && m.in_keeps_type(2); },              [](M m) { return m.in(2); }},
  {"select-same",         "select",       [](M m) { return m.same(1, 2) && m.in_keeps_type(1); },                  second},

  {"cast-same",           "cast",         [](M m) { return m.in_keeps_type(); },                                   first},
  {"cast-back",           "cast",         cast_back,                                                               inner},
  {"cast-chain",          "cast",         cast_through,                                                            cast_direct},
  {"bitcast-same",        "bitcast",      [](M m) { return m.in_keeps_type(); },                                   first},

  {"reshape-same",        "reshape",      [](M m) { return m.in_keeps_type(); },                                   first},
  {"reshape-chain",       "reshape",      [](M m) { return m.from(0, "reshape"); },                                reshape_chain},
  {"reshape-unmerged",    "reshape",      transposes_behind_merged,                                                transpose_unmerged},
  {"transpose-identity",  "transpose",    [](M m) { return identity_perm(m.n.attr("perm").as_ints()); },           first},
  {"transpose-chain",     "transpose",    [](M m) { return m.from(0, "transpose"); },                              transpose_chain},
  {"matmul-turned",       "matmul",       matmul_of_transposed,                                                    contraction},
  {"matmul-transposed",   "matmul",       matmul_transposed,                                                       linear},
  {"broadcast-same",      "broadcast_to", [](M m) { return m.in_keeps_type(); },                                   first},
  {"broadcast-chain",     "broadcast_to", [](M m) { return m.from(0, "broadcast_to"); },                           broadcast_chain},
  {"expand-dims-none",    "expand_dims",  empty_axes,                                                              first},
  {"squeeze-none",        "squeeze",      empty_axes,                                                              first},
  {"flip-none",           "flip",         empty_axes,                                                              first},
  {"slice-whole",         "slice",        whole_slice,                                                             first},
  {"update-of-full",      "dynamic_update_slice", [](M m) { return around_update(m).has_value(); },                padded},
  {"pad-nothing",         "pad",          zero_pads,                                                               first},
  {"gather-one",          "gather",       [](M m) { return one_index(m).axis >= 0; },                              slice_one},
  {"concat-one",          "concat",       one_operand,                                                             first},
  {"concat-merged",       "concat",       joins_merged,                                                            joined_merged},

  {"sum-int-no-axes",     "reduce_sum",   [](M m) { return m.is_int() && empty_axes(m); },                         first},
  {"prod-real-no-axes",   "reduce_prod",  [](M m) { return !is_complex(m.dtype()) && empty_axes(m); },             first},
  {"max-no-axes",         "reduce_max",   empty_axes,                                                              first},
  {"min-no-axes",         "reduce_min",   empty_axes,                                                              first},
  {"any-no-axes",         "reduce_any",   empty_axes,                                                              first},
  {"all-no-axes",         "reduce_all",   empty_axes,                                                              first},
};
// clang-format on

}  // namespace

std::span<const Rule> rules() { return kRules; }

}  // namespace tessera::passes
