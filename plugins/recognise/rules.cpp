// SPDX-License-Identifier: Apache-2.0
// What exporters take apart, one rule per line: name, pattern, when, becomes. A composite computes with its own intermediate
// precision and rounds once, so a rewrite may change last bits; of attention, a query that sees no key gives 0 where the parts
// give NaN.
#include "rules.hpp"

#include <algorithm>
#include <cmath>

#include <tessera/dtypes.hpp>

namespace tessera::passes {
namespace {

using C = const Candidate&;
using V = sdk::Value;
using sdk::attr_bool, sdk::attr_float, sdk::attr_int, sdk::attr_string;

bool same_type(V a, V b) { return a.raw().type == b.raw().type; }  // types are interned

// ---- activations
bool of_x(C c) { return same_type(c.found["x"], c.out()); }
V gelu(C c) { return c.g.op(c.here(), "gelu", {c.found["x"]}); }
V gelu_tanh(C c) { return c.g.op(c.here(), "gelu", {c.found["x"]}, {attr_string("approximate", "tanh")}); }
V silu(C c) { return c.g.op(c.here(), "silu", {c.found["x"]}); }

// ---- norms: means over the last dimensions
// First of the dimensions that both means reduce; -1 when they are not the last ones.
int64_t first_axis(V mean, int64_t rank) {
  auto list = mean.def().attr("axes").as_ints();
  std::vector<int64_t> axes(list.begin(), list.end());
  for (int64_t& a : axes)
    if (a < 0) a += rank;
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != rank - static_cast<int64_t>(axes.size() - i)) return -1;
  return axes.empty() || !mean.def().attr("keepdims").as_bool() ? -1 : axes[0];
}
int64_t norm_axis(C c) {
  const auto rank = static_cast<int64_t>(c.found["x"].type().rank());
  const int64_t axis = first_axis(c.found["v"], rank);
  return c.found.has("m") && first_axis(c.found["m"], rank) != axis ? -1 : axis;
}
bool normalises(C c) { return of_x(c) && is_float(c.out().type().dtype()) && norm_axis(c) >= 0; }
V layer_norm(C c) {
  return c.g.op(c.here(), "layer_norm", {c.found["x"], c.g.none(), c.g.none()},
                {attr_int("axis", norm_axis(c)), attr_float("eps", c.found.number("eps", 0))});
}
V rms_norm(C c) {
  return c.g.op(c.here(), "rms_norm", {c.found["x"], c.g.none()},
                {attr_int("axis", norm_axis(c)), attr_float("eps", c.found.number("eps", 0))});
}
// Weights of the normalised shape, and a norm that nothing else uses.
bool scales(C c) {
  const V l = c.found["l"], w = c.found["w"];
  const auto rank = static_cast<int64_t>(l.type().rank());
  int64_t axis = l.def().attr("axis").as_int();
  if (axis < 0) axis += rank;
  const auto inner = l.type().sizes().subspan(static_cast<size_t>(axis));
  return l.num_uses() == 1 && same_type(l, c.out()) &&
         std::equal(inner.begin(), inner.end(), w.type().sizes().begin(), w.type().sizes().end());
}
V scaled(C c, const char* op, std::initializer_list<V> operands) {
  const sdk::Node l = c.found["l"].def();
  return c.g.op(c.here(), op, operands, {*l.attr("axis").p, *l.attr("eps").p});
}
V layer_norm_scale(C c) { return scaled(c, "layer_norm", {c.found["x"], c.found["w"], c.g.none()}); }
V layer_norm_shift(C c) { return scaled(c, "layer_norm", {c.found["x"], c.found["g"], c.found["w"]}); }
V rms_norm_scale(C c) { return scaled(c, "rms_norm", {c.found["x"], c.found["w"]}); }

// ---- attention: q [*B, L, E], t [*B, E, S] the transposed keys, v [*B, S, V]
bool attends(C c) {
  const sdk::Type q = c.found["q"].type(), t = c.found["t"].type(), v = c.found["v"].type(), out = c.out().type();
  const uint32_t rank = q.rank();
  if (rank < 3 || t.rank() != rank || v.rank() != rank || !is_float(q.dtype()) || c.found.number("d", 1) == 0) return false;
  if (out.rank() != rank || out.dtype() != q.dtype() || out.size(-1) != v.size(-1) || out.size(-2) != q.size(-2)) return false;
  const auto equal = [&](tsr_dim a, tsr_dim b) { return c.g.compare(TSR_EQ, a, b) == TSR_TRUE; };
  if (!equal(q.size(-1), t.size(-2)) || !equal(t.size(-1), v.size(-2))) return false;
  for (uint32_t i = 0; i + 2 < rank; ++i)
    if (q.size(i) != out.size(i) || !equal(q.size(i), t.size(i)) || !equal(q.size(i), v.size(i))) return false;
  const int64_t axis = c.found["p"].def().attr("axis").as_int();
  if (axis != -1 && axis != static_cast<int64_t>(rank) - 1) return false;
  if (c.found.has("mask")) {
    const sdk::Type m = c.found["mask"].type();
    const bool picks = c.found.numbers.contains("hidden");
    if (m.dtype() != (picks ? TSR_BOOL : q.dtype()) || m.rank() > rank) return false;
    if (picks && c.found.number("hidden", 0) != -HUGE_VAL) return false;
    for (uint32_t i = 0; i < m.rank(); ++i) {  // it broadcasts to the scores and does not widen them
      const uint32_t at = rank - m.rank() + i;
      const tsr_dim want = at + 2 < rank ? q.size(at) : at + 2 == rank ? q.size(-2) : t.size(-1);
      if (m.size(i) != 1 && m.size(i) != want) return false;
    }
  }
  return true;
}
V attention_of(C c, V mask) {
  const double scale = c.found.number("s", 1) * c.found.number("a", 1) * c.found.number("b", 1) / c.found.number("d", 1);
  // The keys as they were before they were transposed: another order of the same dimensions.
  V k = c.found["t"];
  std::vector<int64_t> perm;
  if (const sdk::Node t = k.def(); t && t.is("transpose")) {
    const auto p = t.attr("perm").as_ints();
    perm.assign(p.begin(), p.end());
    for (int64_t& x : perm)
      if (x < 0) x += static_cast<int64_t>(perm.size());
    k = t.operand(0);
  } else {
    for (uint32_t i = 0; i < k.type().rank(); ++i) perm.push_back(i);
  }
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  if (!std::is_sorted(perm.begin(), perm.end())) k = c.g.op(c.here(), "transpose", {k}, {sdk::attr_ints("perm", perm)});
  return c.g.op(c.here(), "attention", {c.found["q"], k, c.found["v"], mask},
                {attr_float("scale", scale), attr_bool("causal", false)});
}
V attention(C c) { return attention_of(c, c.found.has("mask") ? c.found["mask"] : c.g.none()); }
V attention_filled(C c) { return attention_of(c, c.g.op(c.here(), "logical_not", {c.found["mask"]})); }
bool attends_scaled(C c) { return attends(c) && c.found.number("s", 1) * c.found.number("a", 1) * c.found.number("b", 1) != 0; }

// Numbers have all the digits of f64: see pattern.hpp for what matches them.
#define ROOT_2       "1.4142135623730951"
#define ROOT_HALF    "0.7071067811865476"
#define ROOT_2_BY_PI "0.7978845608028654"
#define ERF          "erf([div(x, " ROOT_2 ") | mul(x, " ROOT_HALF ")])"
#define CUBE         "[pow(x, 3) | mul(mul(x, x), x)]"
#define TANH                                                                                \
  "tanh([mul(add(x, mul(" CUBE ", 0.044715)), " ROOT_2_BY_PI ") | mul(mul(x, " ROOT_2_BY_PI \
  "), add(mul(mul(x, x), 0.044715), 1))])"
#define EPS(SQUARES)    "add(v=mean(" SQUARES "), #eps)"
#define VARIANCE        EPS("[mul(d, d) | pow(d, 2)]")
#define MEAN_SQUARE     EPS("[mul(x, x) | pow(x, 2)]")
#define INVERSE_ROOT(X) "[rsqrt(" X ") | reciprocal(sqrt(" X ")) | div(1, sqrt(" X "))]"
#define SCORES                                                                                                               \
  "[mul(matmul(q, t), #s) | div(matmul(q, t), #d) | matmul(mul(q, #a), mul(t, #b)) | matmul(mul(q, #a), t) | matmul(div(q, " \
  "#d), t) | matmul(q, t)]"
#define GUARDED(P) "[select(is_nan(" P "), 0, p) | " P "]"

// clang-format off
constexpr Rule kRules[] = {
    {"gelu-half-last",      "mul(mul(x, add(" ERF ", 1)), 0.5)",                                  of_x,           gelu},
    {"gelu-half-first",     "mul(mul(x, 0.5), add(" ERF ", 1))",                                  of_x,           gelu},
    {"gelu-half-inside",    "mul(x, mul(add(" ERF ", 1), 0.5))",                                  of_x,           gelu},
    {"gelu-tanh-last",      "mul(mul(x, add(" TANH ", 1)), 0.5)",                                 of_x,           gelu_tanh},
    {"gelu-tanh-first",     "mul(mul(x, 0.5), add(" TANH ", 1))",                                 of_x,           gelu_tanh},
    {"gelu-tanh-inside",    "mul(x, mul(add(" TANH ", 1), 0.5))",                                 of_x,           gelu_tanh},
    {"silu",                "mul(x, sigmoid(x))",                                                 of_x,           silu},
    {"layer-norm-div",      "div(d=sub(x, m=mean(x)), sqrt(" VARIANCE "))",                       normalises,     layer_norm},
    {"layer-norm-mul",      "mul(d=sub(x, m=mean(x)), " INVERSE_ROOT(VARIANCE) ")",               normalises,     layer_norm},
    {"layer-norm-scale",    "mul(l=layer_norm(x), w)",                                            scales,         layer_norm_scale},
    {"layer-norm-shift",    "add(l=layer_norm(x, g), w)",                                         scales,         layer_norm_shift},
    {"rms-norm-mul",        "mul(x, " INVERSE_ROOT(MEAN_SQUARE) ")",                              normalises,     rms_norm},
    {"rms-norm-div",        "div(x, sqrt(" MEAN_SQUARE "))",                                      normalises,     rms_norm},
    {"rms-norm-scale",      "mul(l=rms_norm(x), w)",                                              scales,         rms_norm_scale},
    {"attention-masked",    "matmul(" GUARDED("p=softmax(add(" SCORES ", mask))") ", v)",         attends_scaled, attention},
    {"attention-selected",  "matmul(" GUARDED("p=softmax(select(mask, " SCORES ", #hidden))") ", v)", attends_scaled, attention},
    {"attention-filled",    "matmul(" GUARDED("p=softmax(select(mask, #hidden, " SCORES "))") ", v)", attends_scaled, attention_filled},
    {"attention",           "matmul(" GUARDED("p=softmax(" SCORES ")") ", v)",                    attends_scaled, attention},
};
// clang-format on

}  // namespace

std::span<const Rule> rules() { return kRules; }

}  // namespace tessera::passes
