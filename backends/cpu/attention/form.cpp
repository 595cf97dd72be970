// SPDX-License-Identifier: Apache-2.0
#include "attention/form.hpp"

#include <algorithm>
#include <cmath>

#include "attention/attention.hpp"
#include "finish.hpp"
#include "tessera/dtypes.hpp"

namespace cpu {

namespace sdk = tessera::sdk;
namespace kit = tessera::kit;

namespace {

bool is_number(const sdk::Value& v, double x) {
  const sdk::Node def = v.def();
  if (!def || !def.is("constant") || v.type().elements() != 1 || v.type().dtype() != TSR_F32) return false;
  const auto is = static_cast<double>(tessera::load_as<float>(TSR_F32, def.attr("value").as_tensor().data, 0));
  return is == x;
}

bool over_last(const sdk::Node& n, int64_t axis) {
  const int64_t rank = n.operand(0).type().rank();
  return axis == -1 || axis == rank - 1;
}

// What stands between softmax and the second product, for queries that see no key.
struct Guard {
  sdk::Node softmax;
  Blind blind = Blind::kNaN;
  std::vector<sdk::Node> nodes;
};
std::optional<Guard> guard_of(const sdk::Value& weights) {
  Guard out;
  sdk::Node n = weights.def();
  if (n && n.is("select")) {
    const sdk::Node cond = n.operand(0).def(), softmax = n.operand(2).def();
    if (!cond || !softmax || !softmax.is("softmax") || !is_number(n.operand(1), 0)) return std::nullopt;
    out.nodes = {n, cond};
    if (cond.is("is_nan") && cond.operand(0) == softmax.result()) {
      out.blind = Blind::kNaNIsZero;
    } else if (cond.is("eq") && is_number(cond.operand(1), -HUGE_VAL)) {
      const sdk::Node top = cond.operand(0).def();
      if (!top || !top.is("reduce_max") || top.operand(0) != softmax.operand(0) || !top.attr("keepdims").as_bool())
        return std::nullopt;
      const auto axes = top.attr("axes").as_ints();
      if (axes.size() != 1 || !over_last(top, axes[0])) return std::nullopt;
      out.blind = Blind::kZero;
      out.nodes.push_back(top);
    } else {
      return std::nullopt;
    }
    n = softmax;
  }
  if (!n || !n.is("softmax") || !over_last(n, n.attr("axis").as_int())) return std::nullopt;
  out.softmax = n;
  return out;
}

bool single(const ProductAxes& p, size_t rank) {
  return p.m.size() == 1 && p.n.size() == 1 && p.k.size() == 1 && p.batch.size() + 2 == rank;
}

// Behind views that repeat heads (of keys and values that several heads of queries share) and transpose: what they read, and
// for each dimension of `v` which one of it that is. A repeated dimension is shorter there. No value: something else is among
// them.
struct Base {
  sdk::Value value;
  std::vector<int> dims;
  std::vector<sdk::Node> views;
  bool repeats = false;
};
std::optional<Base> base_of(const sdk::Node& fused, sdk::Value v) {
  const auto inputs = sdk::Graph(fused.g).inputs(fused.regions()[0]);
  Base out;
  for (uint32_t d = 0; d < v.type().rank(); ++d) out.dims.push_back(static_cast<int>(d));
  while (std::find(inputs.begin(), inputs.end(), v.id) == inputs.end()) {
    const sdk::Node n = v.def();
    if (!n) return std::nullopt;
    out.views.push_back(n);
    if (n.is("transpose")) {
      const auto perm = n.attr("perm").as_ints();
      const auto rank = static_cast<int64_t>(perm.size());
      for (int& d : out.dims) d = static_cast<int>((perm[static_cast<size_t>(d)] + rank) % rank);
      v = n.operand(0);
      continue;
    }
    // [.., n, ..] as [.., n, 1, ..], that as [.., n, times, ..], and that as [.., n * times, ..].
    const sdk::Node wide = n.is("reshape") ? n.operand(0).def() : n;
    const sdk::Node narrow = wide && wide.is("broadcast_to") ? wide.operand(0).def() : sdk::Node{};
    if (out.repeats || !n.is("reshape") || !narrow || !(narrow.is("expand_dims") || narrow.is("reshape"))) return std::nullopt;
    const auto from = narrow.operand(0).type().sizes(), one = narrow.result().type().sizes(),
               many = wide.result().type().sizes(), to = n.result().type().sizes();
    if (to.size() != from.size() || one.size() != from.size() + 1 || many.size() != one.size()) return std::nullopt;
    size_t at = 0;  // of the new dimension
    while (at < many.size() && one[at] == many[at]) ++at;
    if (at == 0 || at == many.size() || one[at] != 1) return std::nullopt;
    for (size_t d = 0; d < one.size(); ++d) {
      if (d != at && (one[d] != many[d] || one[d] != from[d < at ? d : d - 1])) return std::nullopt;
      if (d != at && d + 1 != at && to[d < at ? d : d - 1] != many[d]) return std::nullopt;
    }
    out.views.push_back(wide);
    out.views.push_back(narrow);
    out.repeats = true;
    v = narrow.operand(0);
  }
  out.value = v;
  return out;
}

// The piece of all nodes of the region but those, from `scores` (or nothing) to `to`.
void collect(const sdk::Node& fused, const std::vector<sdk::Node>& others, const sdk::Value* scores, const sdk::Value& to,
             AttentionForm& out) {
  const sdk::Graph g(fused.g);
  const tsr_id region = fused.regions()[0];
  out.piece.outputs = {to};
  if (scores) out.piece.inputs.push_back(*scores);
  for (const sdk::Node& n : g.nodes(region)) {
    if (n.is("constant") || std::find(others.begin(), others.end(), n) != others.end()) continue;
    out.piece.nodes.push_back(n);
  }
  const auto inputs = g.inputs(region);
  for (uint32_t i = 0; i < inputs.size(); ++i) {
    const sdk::Value v = g.value(inputs[i]);
    const auto uses = v.uses();
    const auto in_piece = [&](const tsr_use& u) {
      return std::any_of(out.piece.nodes.begin(), out.piece.nodes.end(), [&](const sdk::Node& n) { return n.id == u.node; });
    };
    if (!std::any_of(uses.begin(), uses.end(), in_piece)) continue;
    out.piece.inputs.push_back(v);
    out.operand_of.push_back(i);
  }
}

const char* products_form(const sdk::Node& fused, const sdk::Node& results, AttentionForm& out) {
  const sdk::Graph g(fused.g);
  const std::optional<Guard> guard = guard_of(results.operand(0));
  if (!guard) return "the second product's left side is no softmax over the last dimension";
  out.results = results, out.blind = guard->blind;
  for (const sdk::Node& n : g.nodes(fused.regions()[0]))
    if (is_product(n.op()) && !(n == results)) {
      if (out.scores) return "the region has more than two products";
      out.scores = n;
    }
  if (!out.scores || out.scores.is("linear") || results.is("linear")) return "the region has no products of scores and values";
  for (const sdk::Node& n : {out.scores, results}) {
    const ProductClaim claim = claim_product(n);
    if (claim.why) return claim.why;
    for (const sdk::Type& t : {n.operand(0).type(), n.operand(1).type(), n.result().type()})
      if (t.dtype() != TSR_F32) return "cpu modifies scores of f32";
    (n == results ? out.of_results : out.of_scores) = claim.axes;
  }
  const sdk::Value x = guard->softmax.operand(0), scores = out.scores.result();
  const auto rank = static_cast<int>(x.type().rank());
  if (x.type().dtype() != TSR_F32) return "cpu modifies scores of f32";
  if (!single(out.of_scores, scores.type().rank()) || !single(out.of_results, static_cast<size_t>(rank)))
    return "queries, keys, depth and values are a dimension each";
  for (int d = 0; d + 2 < rank; ++d)
    if (out.of_results.batch[static_cast<size_t>(d)].first != d)
      return "the second product has other batch dimensions than the scores";
  if (out.of_results.m[0] != rank - 2 || out.of_results.k[0].first != rank - 1) return "the second product contracts no keys";
  for (const int i : {-2, -1})
    if (x.type().size(i) != scores.type().size(i)) return "queries and keys change their places on the way to softmax";
  if (!is_outer_operand(fused, out.scores, 0)) return "something precedes the queries";
  out.queries = out.scores.operand(0);
  const std::optional<Base> keys_from = base_of(fused, out.scores.operand(1)), values_from = base_of(fused, results.operand(1));
  if (!keys_from || !values_from) return "something precedes the keys or values";
  out.keys = keys_from->value, out.values = values_from->value;
  for (const auto& [axes, base] : {std::pair{&out.of_scores, &*keys_from}, std::pair{&out.of_results, &*values_from}}) {
    const auto there = [&](int& d) { d = d < 0 ? d : base->dims[static_cast<size_t>(d)]; };
    for (auto& [x, y] : axes->batch) there(y);
    for (auto& [x, y] : axes->k) there(y);
    there(axes->n[0]);
  }
  // Queries say how many heads there are where keys do not.
  if (keys_from->repeats)
    for (size_t d = 0; d < out.of_scores.batch.size(); ++d) {
      const int x = out.of_scores.batch[d].first;
      if (x < 0 || out.queries.type().size(x) != scores.type().size(static_cast<int64_t>(d)))
        return "queries have fewer heads than scores";
    }
  const tsr_dim queries = x.type().size(-2);
  if (queries >= 0 && queries < kFewQueries) return "cpu's attention has queries in its lanes, and these are few";
  if (x.type().size(-1) == 0) return "there are no keys";
  std::vector<sdk::Node> others = guard->nodes;
  for (const sdk::Node& n : {results, out.scores, guard->softmax}) others.push_back(n);
  others.insert(others.end(), keys_from->views.begin(), keys_from->views.end());
  others.insert(others.end(), values_from->views.begin(), values_from->views.end());
  collect(fused, others, &scores, x, out);
  for (const tsr_dim d : x.type().sizes()) out.shape.push_back(d);
  if (out.piece.nodes.empty() && !(x == scores)) return "softmax does not read the scores";
  return nullptr;
}

const char* mask_form(const sdk::Node& fused, const sdk::Node& whole, AttentionForm& out) {
  if (const char* why = refuse_attention(whole)) return why;
  out.whole = whole;
  out.queries = whole.operand(0), out.keys = whole.operand(1), out.values = whole.operand(2);
  for (uint32_t i = 0; i < 3; ++i)
    if (!is_outer_operand(fused, whole, i)) return "something precedes the queries, keys or values";
  if (!whole.has_operand(3) || is_outer_operand(fused, whole, 3)) return "the mask is not computed in the region";
  const sdk::Value mask = whole.operand(3);
  const sdk::Type q = whole.operand(0).type(), k = whole.operand(1).type();
  for (uint32_t d = 0; d + 1 < q.rank(); ++d) out.shape.push_back(q.size(d));
  out.shape.push_back(k.size(-2));
  if (k.size(-2) == 0) return "there are no keys";
  collect(fused, {whole}, nullptr, mask, out);
  return nullptr;
}

}  // namespace

bool is_attention_group(const sdk::Node& n) {
  if (!n.is("fused") || n.regions().size() != 1) return false;
  int products = 0;
  for (const sdk::Node& x : sdk::Graph(n.g).nodes(n.regions()[0])) {
    if (x.is("attention")) return true;
    products += is_product(x.op());
  }
  return products > 1;
}

std::optional<AttentionForm> attention_form(const sdk::Node& fused, std::string* why) {
  AttentionForm out(fused);
  const sdk::Graph g(fused.g);
  const auto outputs = g.outputs(fused.regions()[0]);
  const sdk::Node last = outputs.size() == 1 ? g.value(outputs[0]).def() : sdk::Node{fused.g, TSR_NONE};
  const char* refusal = !last                   ? "the region has not one result"
                        : last.is("attention")  ? mask_form(fused, last, out)
                        : is_product(last.op()) ? products_form(fused, last, out)
                                                : "the region does not end in a product";
  if (refusal) {
    *why = refusal;
    return std::nullopt;
  }
  return out;
}

}  // namespace cpu
