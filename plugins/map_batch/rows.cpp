// SPDX-License-Identifier: Apache-2.0
#include "rows.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include <tessera/dtypes.hpp>

namespace tessera::map_batch {

namespace t = tessera::sdk;

namespace {

struct Refusal {};
void need(bool holds) {
  if (!holds) throw Refusal();
}

class Reader {
 public:
  Reader(t::Graph g, t::Node n, int64_t items) : g_(g), n_(n), items_(items) {
    rule_.reads.assign(n.num_operands(), Read::kWhole);
  }

  Rule run() {
    need(n_.num_results() > 0 && n_.num_operands() > 0 && n_.regions().empty());
    for (uint32_t i = 0; i < n_.num_operands(); ++i) need(!n_.has_operand(i) || sound(n_.operand(i)));
    for (uint32_t i = 0; i < n_.num_results(); ++i) need(sound(n_.result(i)) && holds_items(n_.result(i).type(), items_));
    dispatch();
    need(std::find(rule_.reads.begin(), rule_.reads.end(), Read::kRows) != rule_.reads.end());
    return std::move(rule_);
  }

 private:
  static bool sound(t::Value v) {  // slices begin at a byte
    return v.type().is_static() && !v.type().p->strides && v.type().p->device == 0 && dtype_bits(v.type().dtype()) >= 8;
  }

  void rows(uint32_t operand) {
    need(holds_items(n_.operand(operand).type(), items_));
    rule_.reads[operand] = Read::kRows;
  }
  // Of a value that is broadcast to the result: by rows where it has the result's, as a whole where it has none of its own.
  void broadcasts(uint32_t operand) {
    const t::Type from = n_.operand(operand).type(), to = n_.result().type();
    need(from.rank() <= to.rank());
    if (from.rank() < to.rank()) return;
    if (from.size(0) == to.size(0)) return rows(operand);
    need(from.size(0) == 1);
  }
  int64_t axis(const char* name, uint32_t rank) const {
    const int64_t a = n_.attr(name).as_int();
    return a < 0 ? a + rank : a;
  }
  void not_first(std::span<const int64_t> axes, uint32_t rank) const {
    for (const int64_t a : axes) need((a < 0 ? a + rank : a) != 0);
  }
  bool is_constant(uint32_t operand) const { return n_.operand(operand).def() && n_.operand(operand).def().is("constant"); }
  // A product of `operand`, which is weights, with `count` rows of the whole batch.
  void weights(uint32_t operand, int64_t count) {
    need(is_constant(operand));  // what is not would be rearranged for every item
    rule_.rows = std::max<int64_t>(1, count / items_);
  }
  void flops(double per_result) {
    rule_.flops = per_result * static_cast<double>(n_.result().type().elements()) / static_cast<double>(items_);
  }

  void dispatch() {
    static const std::map<std::string_view, void (Reader::*)()> kRules = {
        {"transpose", &Reader::transpose},
        {"reshape", &Reader::first},
        {"broadcast_to", &Reader::all_broadcast},
        {"expand_dims", &Reader::axes_of_result},
        {"squeeze", &Reader::axes_of_operand},
        {"slice", &Reader::slice},
        {"pad", &Reader::pad},
        {"concat", &Reader::all_on_axis},
        {"stack", &Reader::all_on_axis},
        {"split", &Reader::on_axis},
        {"sort", &Reader::on_axis},
        {"topk", &Reader::on_axis},
        {"cumsum", &Reader::on_axis},
        {"cumprod", &Reader::on_axis},
        {"cummax", &Reader::on_axis},
        {"cummin", &Reader::on_axis},
        {"argmax", &Reader::on_axis},
        {"argmin", &Reader::on_axis},
        {"softmax", &Reader::on_axis},
        {"log_softmax", &Reader::on_axis},
        {"layer_norm", &Reader::on_axis},
        {"rms_norm", &Reader::on_axis},
        {"flip", &Reader::axes_of_operand},
        {"tril", &Reader::matrices},
        {"triu", &Reader::matrices},
        {"group_norm", &Reader::first},
        {"batch_norm", &Reader::first},
        {"max_pool", &Reader::first},
        {"avg_pool", &Reader::first},
        {"adaptive_avg_pool", &Reader::first},
        {"adaptive_max_pool", &Reader::first},
        {"interpolate", &Reader::first},
        {"conv", &Reader::conv},
        {"conv_transpose", &Reader::conv},
        {"dot_general", &Reader::dot_general},
        {"matmul", &Reader::matmul},
        {"linear", &Reader::linear},
        {"attention", &Reader::attention},
        {"gather", &Reader::gather},
        {"embedding", &Reader::embedding},
    };
    const char* const op = n_.raw().op;
    if (const auto at = kRules.find(op); at != kRules.end()) return (this->*at->second)();
    need(std::string_view(op).find('.') == std::string_view::npos && g_.has_trait(op, "pure"));  // of the standard set
    if (g_.has_trait(op, "elementwise")) return all_broadcast();
    need(g_.has_trait(op, "reduction") && n_.find("axes"));
    axes_of_operand();
  }

  // ---- rules
  void first() { rows(0); }
  void all_broadcast() {
    for (uint32_t i = 0; i < n_.num_operands(); ++i)
      if (n_.has_operand(i)) broadcasts(i);
  }
  void transpose() {
    need(n_.attr("perm").as_ints()[0] == 0);
    rows(0);
  }
  void axes_of_operand() {
    not_first(n_.attr("axes").as_ints(), n_.operand(0).type().rank());
    rows(0);
  }
  void axes_of_result() {
    not_first(n_.attr("axes").as_ints(), n_.result().type().rank());
    rows(0);
  }
  void on_axis() {
    need(axis("axis", n_.operand(0).type().rank()) != 0);
    rows(0);
  }
  void all_on_axis() {
    need(axis("axis", n_.result().type().rank()) != 0);
    for (uint32_t i = 0; i < n_.num_operands(); ++i) rows(i);
  }
  void matrices() {
    need(n_.operand(0).type().rank() >= 3);
    rows(0);
  }
  void slice() {
    need(n_.attr("starts").as_ints()[0] == 0 && n_.attr("strides").as_ints()[0] == 1 &&
         n_.attr("limits").as_ints()[0] == n_.operand(0).type().size(0));
    rows(0);
  }
  void pad() {
    const auto interior = n_.attr("interior").as_ints();
    need(n_.attr("low").as_ints()[0] == 0 && n_.attr("high").as_ints()[0] == 0 && (interior.empty() || interior[0] == 0));
    rows(0);
  }
  void conv() {
    const t::Type weight = n_.operand(1).type(), y = n_.result().type();
    rows(0);
    int64_t positions = 1;
    for (uint32_t d = 2; d < y.rank(); ++d) positions *= y.size(d);
    weights(1, items_ * positions);
    flops(2.0 * static_cast<double>(weight.elements()) / static_cast<double>(std::max<int64_t>(1, weight.size(0))));
  }
  void linear() {
    const t::Type weight = n_.operand(1).type(), y = n_.result().type();
    need(y.rank() >= 2);
    rows(0);
    weights(1, y.elements() / std::max<int64_t>(1, weight.size(0)));
    flops(2.0 * static_cast<double>(weight.size(1)));
  }
  void matmul() {
    const t::Type a = n_.operand(0).type(), b = n_.operand(1).type(), y = n_.result().type();
    need(a.rank() >= 2 && b.rank() >= 2 && a.rank() == y.rank());
    rows(0);
    if (b.rank() == a.rank() && a.rank() > 2 && b.size(0) == a.size(0))
      rows(1);
    else if (b.rank() == 2)
      weights(1, y.elements() / std::max<int64_t>(1, b.size(1)));
    else
      need(b.rank() < a.rank() || b.size(0) == 1);
    flops(2.0 * static_cast<double>(a.size(-1)));
  }
  // The result is [batch.., free dimensions of a.., of b..].
  void dot_general() {
    const auto batch_a = n_.attr("lhs_batch").as_ints(), batch_b = n_.attr("rhs_batch").as_ints();
    const auto contract = n_.attr("lhs_contract").as_ints();
    const t::Type a = n_.operand(0).type();
    rows(0);
    if (!batch_a.empty()) {
      need(batch_a[0] == 0 && batch_b[0] == 0);
      rows(1);
    } else {
      need(std::find(contract.begin(), contract.end(), 0) == contract.end());
      int64_t summed = 1;
      for (const int64_t c : contract) summed *= a.size(c);
      weights(1, a.elements() / std::max<int64_t>(1, summed));
    }
    double k = 1;
    for (const int64_t c : contract) k *= static_cast<double>(a.size(c));
    flops(2 * k);
  }
  void attention() {
    const t::Type q = n_.operand(0).type(), k = n_.operand(1).type(), v = n_.operand(2).type();
    need(q.rank() >= 3 && k.rank() == q.rank() && v.rank() == q.rank() && k.size(0) == q.size(0) && v.size(0) == q.size(0));
    for (uint32_t i = 0; i < 3; ++i) rows(i);
    if (n_.has_operand(3)) broadcasts(3);
    flops(2.0 * static_cast<double>(k.size(-2)) *
          (1 + static_cast<double>(q.size(-1)) / static_cast<double>(std::max<int64_t>(1, v.size(-1)))));
  }
  void gather() {
    if (axis("axis", n_.operand(0).type().rank()) != 0) return rows(0);
    need(n_.operand(1).type().rank() >= 1);
    rows(1);
  }
  void embedding() { rows(1); }

  t::Graph g_;
  t::Node n_;
  int64_t items_;
  Rule rule_;
};

}  // namespace

bool holds_items(t::Type type, int64_t items) {
  return type.rank() > 0 && !TSR_DIM_IS_EXPR(type.size(0)) && type.size(0) > 0 && type.size(0) % items == 0;
}

std::optional<Rule> rule_for(t::Graph g, t::Node n, int64_t items) {
  try {
    return Reader(g, n, items).run();
  } catch (const Refusal&) {
    return std::nullopt;
  }
}

ItemAttrs::ItemAttrs(t::Node n, int64_t items) : attrs_(n.attrs().begin(), n.attrs().end()) {
  // Of the ops that have a rule, these name sizes of the whole batch.
  const char* const name = n.is("reshape") || n.is("broadcast_to") ? "shape" : n.is("slice") ? "limits" : nullptr;
  for (tsr_attr& a : attrs_) {
    if (!name || std::string_view(a.name) != name) continue;
    first_.assign(a.ints, a.ints + a.count);
    first_[0] /= items;
    a.ints = first_.data();
  }
}

}  // namespace tessera::map_batch
