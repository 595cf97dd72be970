// SPDX-License-Identifier: Apache-2.0
#include "proof.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>

#include <tessera/dtypes.hpp>

namespace tessera::bucket {

namespace t = tessera::sdk;

namespace {

struct Refusal {
  std::string why;
};
[[noreturn]] void refuse(std::string why) { throw Refusal{std::move(why)}; }

bool is_integer(tsr_dtype d) { return d >= TSR_I8 && d <= TSR_U64 && d != TSR_U2 && d != TSR_U4; }
bool is_float(tsr_dtype d) { return d == TSR_F16 || d == TSR_BF16 || d == TSR_F32 || d == TSR_F64; }

class Prover {
 public:
  Prover(t::Graph g, Sizes& sizes, bool reorder_sums) : g_(g), sizes_(sizes), reorder_(reorder_sums) {}

  Proof run() {
    Proof out;
    try {
      for (const tsr_id v : g_.inputs()) sound(g_.value(v), "an input");
    } catch (const Refusal& r) {
      out.refused = r.why;
      return out;
    }
    for (const t::Node n : g_.nodes()) {
      try {
        if (!touches(n) || n.is("dim_value")) continue;  // a number of the program stays what it is
        Step s;
        s.node = n;
        for (uint32_t i = 0; i < n.num_results(); ++i) sound(n.result(i), "its result");
        rule(s);
        out.steps.push_back(std::move(s));
      } catch (const Refusal& r) {
        out.refused = "op '" + std::string(n.op()) + "'" + place_of(n) + " " + r.why;
        return out;
      }
    }
    return out;
  }

 private:
  // Not every op knows its source line: then the next one that does is named, or the result.
  static std::string place_of(const t::Node& n) {
    const auto text = [](const tsr_loc& l) { return std::string(l.file) + ":" + std::to_string(l.line); };
    if (n.raw().loc.file) return " at " + text(n.raw().loc);
    for (t::Node m = n.prev(); m; m = m.prev())
      if (m.raw().loc.file) return ", after " + text(m.raw().loc) + ",";
    for (t::Node m = n.next(); m; m = m.next())
      if (m.raw().loc.file) return ", before " + text(m.raw().loc) + ",";
    return " that gives %" + std::string(n.result().name());
  }

  // ---- what a node has to do with the symbol
  bool in_attributes(const t::Node& n) const {
    return std::any_of(n.attrs().begin(), n.attrs().end(), [&](const tsr_attr& a) {
      return (a.kind == TSR_ATTR_DIM && sizes_.mentions(a.i)) ||
             (a.kind == TSR_ATTR_DIMS && sizes_.mentions({a.ints, a.count}));
    });
  }
  bool touches(const t::Node& n) const {
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i) && sizes_.mentions(n.operand(i))) return true;
    for (uint32_t i = 0; i < n.num_results(); ++i)
      if (sizes_.mentions(n.result(i))) return true;
    if (in_attributes(n)) return true;
    for (const tsr_id r : n.regions())
      for (const t::Node inner : g_.nodes(r))
        if (touches(inner)) return true;
    return false;
  }
  void sound(const t::Value& v, const char* what) const {
    if (!sizes_.mentions(v)) return;
    for (const tsr_dim d : v.type().sizes())
      if (!sizes_.grows(d)) refuse(std::string("has a size that may shrink where the dynamic one grows: ") + what);
    if (dtype_bits(v.type().dtype()) < 8) refuse("packs several elements into a byte");
  }

  // ---- axes
  bool padded(const t::Value& v, int64_t axis) const { return sizes_.mentions(v.type().size(axis)); }
  static int64_t axis_of(const t::Node& n, const t::Value& v) {
    const int64_t a = n.attr("axis").as_int();
    return a < 0 ? a + v.type().rank() : a;
  }
  // Operands that are broadcast to the result: each dimension has the result's very size, or 1.
  void broadcasts(const t::Value& operand, std::span<const tsr_dim> to) const {
    const auto from = operand.type().sizes();
    if (from.size() > to.size()) refuse("takes operands of a greater rank than its result");
    for (size_t i = 0; i < from.size(); ++i) {
      const tsr_dim a = from[from.size() - 1 - i], r = to[to.size() - 1 - i];
      if (a == 1 || sizes_.same(a, r)) continue;
      if (sizes_.mentions(a) || sizes_.mentions(r)) refuse("takes the dynamic size to be equal to another one");
    }
  }
  void same_size(tsr_dim a, tsr_dim b) const {
    if ((sizes_.mentions(a) || sizes_.mentions(b)) && !sizes_.same(a, b))
      refuse("takes the dynamic size to be equal to another one");
  }
  void not_padded(const t::Value& v, int64_t axis, const char* does) const {
    if (padded(v, axis)) refuse(does);
  }
  void only_batch(const t::Node& n, const char* does) const {  // of x, its first operand
    for (uint32_t a = 1; a < n.operand(0).type().rank(); ++a) not_padded(n.operand(0), a, does);
    for (uint32_t i = 1; i < n.num_operands(); ++i)
      if (n.has_operand(i) && sizes_.mentions(n.operand(i))) refuse(does);
  }
  static void fill(Step& s, uint32_t operand, Fill f) {
    s.fills.resize(s.node.num_operands(), Fill::kAnything);
    s.fills[operand] = f;
  }
  // A reduction along padded dimensions whose terms a neutral element can stand for.
  void neutral(Step& s, Fill f) const {
    const tsr_dtype d = s.node.operand(0).type().dtype();
    if (!is_integer(d) && !is_float(d) && d != TSR_BOOL)
      refuse(std::string("combines elements of ") + std::string(dtype_table[d].name) +
             " along the padded dimension, for which no neutral one is known");
    fill(s, 0, f);
  }
  void sums(const Step& s) const {
    if (reorder_ || is_integer(s.node.operand(0).type().dtype())) return;
    refuse(
        "adds or multiplies floats along the padded dimension, in an order that depends on its size; bucket.reorder_sums = "
        "true "
        "allows it");
  }

  // ---- rules
  void rule(Step& s) {
    const t::Node n = s.node;
    if (!n.regions().empty()) refuse("has a graph of its own that depends on the size");
    static const std::map<std::string_view, void (Prover::*)(Step&), std::less<>> kRules = {
        {"transpose", &Prover::anything},
        {"expand_dims", &Prover::anything},
        {"squeeze", &Prover::anything},
        {"full", &Prover::anything},
        {"iota", &Prover::anything},  // an index does not depend on how many there are
        {"tril", &Prover::anything},
        {"triu", &Prover::anything},
        {"reshape", &Prover::reshape},
        {"broadcast_to", &Prover::broadcast_to},
        {"slice", &Prover::slice},
        {"pad", &Prover::pad},
        {"concat", &Prover::concat},
        {"stack", &Prover::stack},
        {"split", &Prover::other_axes},
        {"sort", &Prover::other_axes},
        {"topk", &Prover::other_axes},
        {"flip", &Prover::flip},
        {"cumsum", &Prover::scan},
        {"cumprod", &Prover::scan},
        {"cummax", &Prover::scan},
        {"cummin", &Prover::scan},
        {"sum_to", &Prover::sum_to},
        {"argmax", &Prover::arg_reduction},
        {"argmin", &Prover::arg_reduction},
        {"softmax", &Prover::softmax},
        {"log_softmax", &Prover::softmax},
        {"layer_norm", &Prover::trailing_norm},
        {"rms_norm", &Prover::trailing_norm},
        {"group_norm", &Prover::batch_only},
        {"batch_norm", &Prover::batch_norm},
        {"conv", &Prover::batch_only},
        {"conv_transpose", &Prover::batch_only},
        {"max_pool", &Prover::batch_only},
        {"avg_pool", &Prover::batch_only},
        {"adaptive_avg_pool", &Prover::batch_only},
        {"adaptive_max_pool", &Prover::batch_only},
        {"interpolate", &Prover::batch_only},
        {"dot_general", &Prover::dot_general},
        {"matmul", &Prover::matmul},
        {"linear", &Prover::linear},
        {"attention", &Prover::attention},
        {"gather", &Prover::gather},
        {"embedding", &Prover::embedding},
        {"take_along_axis", &Prover::take_along_axis},
        {"one_hot", &Prover::anything},
    };
    const char* const op = n.raw().op;
    if (const auto at = kRules.find(op); at != kRules.end()) return (this->*at->second)(s);
    const bool own = std::string_view(op).find('.') == std::string_view::npos;  // of the standard set
    if (own && g_.has_trait(op, "elementwise") && g_.has_trait(op, "pure")) return elementwise(s);
    if (own && g_.has_trait(op, "reduction")) return reduction(s);
    refuse("has no rule that says what padding does to it");
  }

  void anything(Step&) {}

  void elementwise(Step& s) {
    const t::Node n = s.node;
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      if (n.has_operand(i)) broadcasts(n.operand(i), n.result().type().sizes());
    // What stands behind the beginning must not make a kernel fail.
    const bool divides = n.is("floor_div") || n.is("remainder") || n.is("fmod") || n.is("div");
    if (divides && !is_float(n.operand(1).type().dtype()) && sizes_.mentions(n.operand(1))) fill(s, 1, Fill::kOne);
  }

  void reduction(Step& s) {
    const t::Node n = s.node;
    const t::Value x = n.operand(0);
    bool along = false;
    for (const int64_t a : n.attr("axes").as_ints()) along = along || padded(x, a);
    if (!along) return;
    if (n.is("reduce_sum")) return sums(s), neutral(s, is_float(x.type().dtype()) ? Fill::kMinusZero : Fill::kZero);
    if (n.is("reduce_prod")) return sums(s), neutral(s, Fill::kOne);
    if (n.is("reduce_max") || n.is("reduce_any")) return neutral(s, Fill::kLowest);
    if (n.is("reduce_min") || n.is("reduce_all")) return neutral(s, Fill::kHighest);
    if (n.is("logsumexp")) return sums(s), neutral(s, Fill::kLowest);
    if (n.is("mean")) {
      sums(s);
      if (x.type().dtype() != TSR_F32 && x.type().dtype() != TSR_F64)
        refuse("takes the mean of numbers narrower than f32 along the padded dimension");
      s.kind = Step::kMean;
      return neutral(s, Fill::kMinusZero);
    }
    refuse("combines elements along the padded dimension in a way that has no rule");
  }

  void sum_to(Step& s) {
    const auto from = s.node.operand(0).type().sizes(), to = s.node.result().type().sizes();
    for (size_t i = 0; i < from.size(); ++i) {
      const tsr_dim a = from[from.size() - 1 - i];
      if (sizes_.mentions(a) && (i >= to.size() || !sizes_.same(to[to.size() - 1 - i], a)))
        refuse("sums over the padded dimension");
    }
  }

  void arg_reduction(Step& s) {  // of equal values the first wins, and padding stands last
    const t::Node n = s.node;
    if (!padded(n.operand(0), n.attr("axis").as_int())) return;
    neutral(s, n.is("argmax") ? Fill::kLowest : Fill::kHighest);
  }

  void softmax(Step& s) {
    const t::Node n = s.node;
    if (!padded(n.operand(0), n.attr("axis").as_int())) return;
    sums(s);
    neutral(s, Fill::kLowest);
  }

  void scan(Step& s) {  // in sequence from the first element on, so that what comes later does not matter
    const t::Node n = s.node;
    if (!padded(n.operand(0), n.attr("axis").as_int())) return;
    if (const t::Attr reverse = n.find("reverse"); reverse && reverse.as_bool())
      refuse("runs along the padded dimension from its end");
  }

  void other_axes(Step& s) {
    const t::Node n = s.node;
    not_padded(n.operand(0), n.attr("axis").as_int(), "needs all elements along the padded dimension");
  }
  void flip(Step& s) {
    for (const int64_t a : s.node.attr("axes").as_ints()) not_padded(s.node.operand(0), a, "reverses the padded dimension");
  }
  void batch_only(Step& s) { only_batch(s.node, "needs neighbours along the padded dimension"); }
  void batch_norm(Step& s) {
    const t::Node n = s.node;
    not_padded(n.operand(0), 1, "has parameters along the padded dimension");
    for (uint32_t i = 1; i < n.num_operands(); ++i)
      if (n.has_operand(i) && sizes_.mentions(n.operand(i))) refuse("has parameters along the padded dimension");
  }
  void trailing_norm(Step& s) {
    const t::Node n = s.node;
    for (int64_t a = axis_of(n, n.operand(0)); a < n.operand(0).type().rank(); ++a)
      not_padded(n.operand(0), a, "normalises over the padded dimension");
  }

  void broadcast_to(Step& s) { broadcasts(s.node.operand(0), s.node.result().type().sizes()); }
  void stack(Step& s) {
    const t::Node n = s.node;
    for (uint32_t i = 1; i < n.num_operands(); ++i)
      for (uint32_t a = 0; a < n.operand(0).type().rank(); ++a)
        same_size(n.operand(i).type().size(a), n.operand(0).type().size(a));
  }
  void concat(Step& s) {
    const t::Node n = s.node;
    const int64_t axis = axis_of(n, n.operand(0));
    for (uint32_t i = 0; i < n.num_operands(); ++i)
      for (uint32_t a = 0; a < n.operand(0).type().rank(); ++a) {
        if (a != axis) same_size(n.operand(i).type().size(a), n.operand(0).type().size(a));
        if (a == axis && i + 1 < n.num_operands() && padded(n.operand(i), a))
          refuse("puts other elements behind the padded dimension");
      }
  }

  // Dimensions are merged and split in groups of equal products. Elements of a group stand in row-major order, so its beginning
  // stays a beginning when nothing but its first dimension depends on the symbol.
  void reshape(Step& s) {
    const auto in = s.node.operand(0).type().sizes(), out = s.node.result().type().sizes();
    size_t i = 0, o = 0;
    while (i < in.size() || o < out.size()) {
      const size_t i0 = i, o0 = o;
      tsr_dim a = i < in.size() ? in[i++] : 1, b = o < out.size() ? out[o++] : 1;
      while (a != b) {
        if (sizes_.mentions(a) == sizes_.mentions(b) && o < out.size() && g_.compare(TSR_LT, b, a) == TSR_TRUE)
          b = g_.mul(b, out[o++]);
        else if (sizes_.mentions(b) && !sizes_.mentions(a) && i < in.size())
          a = g_.mul(a, in[i++]);
        else if (sizes_.mentions(a) && !sizes_.mentions(b) && o < out.size())
          b = g_.mul(b, out[o++]);
        else if (i < in.size())
          a = g_.mul(a, in[i++]);
        else if (o < out.size())
          b = g_.mul(b, out[o++]);
        else
          refuse("rearranges the padded dimension");
      }
      if (!sizes_.mentions(a)) continue;
      const auto first_only = [&](std::span<const tsr_dim> dims, size_t from, size_t to) {
        while (from < to && dims[from] == 1) ++from;
        for (size_t k = from + 1; k < to; ++k)
          if (sizes_.mentions(dims[k])) refuse("merges the padded dimension with one before it");
      };
      first_only(in, i0, i);
      first_only(out, o0, o);
      if (sizes_.padded(a) != padded_product(in.subspan(i0, i - i0)) ||
          sizes_.padded(a) != padded_product(out.subspan(o0, o - o0)))
        refuse("splits the padded dimension into parts that the bucket is not a multiple of");
    }
  }
  tsr_dim padded_product(std::span<const tsr_dim> dims) {
    tsr_dim p = 1;
    for (const tsr_dim d : dims) p = g_.mul(p, sizes_.padded(d));
    return p;
  }

  // What starts at a fixed place and goes up reads element `i` for its element `i`. What gives a fixed number of elements,
  // wherever they stand, reads within the original size.
  void slice(Step& s) {
    const t::Node n = s.node;
    const auto starts = n.attr("starts").as_ints(), limits = n.attr("limits").as_ints(), strides = n.attr("strides").as_ints();
    bool follows = false, exact = false;
    for (uint32_t a = 0; a < starts.size(); ++a) {
      if (!padded(n.operand(0), a) && !sizes_.mentions(starts[a]) && !sizes_.mentions(limits[a])) continue;
      if (!padded(n.result(), a)) {
        exact = exact || sizes_.mentions(starts[a]) || sizes_.mentions(limits[a]);
        continue;
      }
      if (sizes_.mentions(starts[a]) || strides[a] < 0) refuse("counts from the end of the padded dimension");
      if (!sizes_.grows(limits[a])) refuse("ends before the end of the padded dimension");
      follows = true;
    }
    if (exact && follows) refuse("takes some elements from the end of one padded dimension and the beginning of another");
    if (exact) s.kind = Step::kExact;
  }

  void pad(Step& s) {
    const t::Node n = s.node;
    const auto low = n.attr("low").as_ints(), high = n.attr("high").as_ints(), interior = n.attr("interior").as_ints();
    for (uint32_t a = 0; a < low.size(); ++a) {
      const bool inner = !interior.empty() && interior[a] != 0;
      if (padded(n.operand(0), a) || padded(n.result(), a) || sizes_.mentions(low[a]) || sizes_.mentions(high[a])) {
        if (low[a] == 0 && high[a] == 0 && !inner) continue;
        if (n.attr("mode").as_string() != "constant" || inner || sizes_.mentions(low[a]) || high[a] != 0 ||
            g_.compare(TSR_GE, low[a], 0) != TSR_TRUE)
          refuse("has elements behind the padded dimension");
      }
    }
  }

  // Free and batch dimensions go through. Along a contracted one both sides are 0 where they are padded (one would not do: 0
  // times infinity). The order of a product's sum is free.
  void contract(Step& s, std::initializer_list<std::pair<int64_t, int64_t>> axes) {
    const t::Value a = s.node.operand(0), b = s.node.operand(1);
    for (const auto& [i, j] : axes) {
      same_size(a.type().size(i), b.type().size(j));
      if (!padded(a, i)) continue;
      fill(s, 0, Fill::kZero);
      fill(s, 1, Fill::kZero);
    }
  }
  void dot_general(Step& s) {
    const t::Node n = s.node;
    const auto lb = n.attr("lhs_batch").as_ints(), rb = n.attr("rhs_batch").as_ints();
    for (size_t i = 0; i < lb.size(); ++i) same_size(n.operand(0).type().size(lb[i]), n.operand(1).type().size(rb[i]));
    const auto lc = n.attr("lhs_contract").as_ints(), rc = n.attr("rhs_contract").as_ints();
    for (size_t i = 0; i < lc.size(); ++i) contract(s, {{lc[i], rc[i]}});
  }
  void matmul(Step& s) {
    const t::Node n = s.node;
    const auto a = n.operand(0).type(), b = n.operand(1).type();
    if (a.rank() < 2 || b.rank() < 2) {
      if (a.rank() != 1 || b.rank() != 1) {
        const bool vector = b.rank() == 1;
        return contract(s, {{vector ? int64_t{a.rank()} - 1 : 0, vector ? 0 : int64_t{b.rank()} - 2}});
      }
      return contract(s, {{0, 0}});
    }
    contract(s, {{a.rank() - 1, b.rank() - 2}});
    const auto to = n.result().type().sizes().first(n.result().type().rank() - 2);
    for (const t::Type& x : {a, b})
      for (uint32_t i = 0; i + 2 < x.rank(); ++i) {
        const tsr_dim size = x.sizes()[x.rank() - 3 - i], r = to[to.size() - 1 - i];
        if (size != 1) same_size(size, r);
      }
  }
  void linear(Step& s) {
    const t::Node n = s.node;
    contract(s, {{int64_t{n.operand(0).type().rank()} - 1, 1}});
    if (n.has_operand(2)) same_size(n.operand(2).type().size(0), n.operand(1).type().size(0));
  }
  void attention(Step& s) {
    const t::Node n = s.node;
    const t::Value q = n.operand(0), k = n.operand(1), v = n.operand(2);
    const uint32_t rank = q.type().rank();
    if (k.type().rank() != rank || v.type().rank() != rank) refuse("takes operands of several ranks");
    for (uint32_t a = 0; a + 2 < rank; ++a)
      for (const t::Value& x : {k, v}) same_size(q.type().size(a), x.type().size(a));
    same_size(k.type().size(rank - 2), v.type().size(rank - 2));
    not_padded(q, rank - 1, "sums over the padded dimension");
    not_padded(k, rank - 1, "sums over the padded dimension");
    if (padded(k, rank - 2)) {
      // A causal query sees the keys up to its own number, none of which is padding; the others count as 0, whatever they are.
      if (!n.attr("causal").as_bool() || !sizes_.same(q.type().size(rank - 2), k.type().size(rank - 2)))
        refuse("attends to keys along the padded dimension without being causal");
      if (n.has_operand(3)) refuse("has a mask over the padded dimension");
      fill(s, 1, Fill::kZero);
      fill(s, 2, Fill::kZero);
    }
    if (!n.has_operand(3) || !sizes_.mentions(n.operand(3))) return;
    std::vector<tsr_dim> scores(q.type().sizes().begin(), q.type().sizes().end());
    scores.back() = k.type().size(rank - 2);
    broadcasts(n.operand(3), scores);
  }

  // Indices behind the beginning have to be sound: they are 0, of a dimension that has an element.
  void indices(Step& s, uint32_t operand, tsr_dim of) const {
    if (!sizes_.mentions(s.node.operand(operand))) return;
    if (g_.compare(TSR_GE, of, 1) != TSR_TRUE) refuse("looks up padded indices in a dimension that may be empty");
    fill(s, operand, Fill::kZero);
  }
  void gather(Step& s) {
    const t::Node n = s.node;
    not_padded(n.operand(0), n.attr("axis").as_int(), "looks elements up along the padded dimension");
    indices(s, 1, n.operand(0).type().size(n.attr("axis").as_int()));
  }
  void embedding(Step& s) {
    not_padded(s.node.operand(0), 0, "looks elements up along the padded dimension");
    indices(s, 1, s.node.operand(0).type().size(0));
  }
  void take_along_axis(Step& s) {
    const t::Node n = s.node;
    const int64_t axis = axis_of(n, n.operand(0));
    not_padded(n.operand(0), axis, "looks elements up along the padded dimension");
    for (uint32_t a = 0; a < n.operand(0).type().rank(); ++a)
      if (a != axis) same_size(n.operand(0).type().size(a), n.operand(1).type().size(a));
    indices(s, 1, n.operand(0).type().size(axis));
  }

  t::Graph g_;
  Sizes& sizes_;
  const bool reorder_;
};

}  // namespace

Proof prove(t::Graph g, Sizes& sizes, bool reorder_sums) { return Prover(g, sizes, reorder_sums).run(); }

}  // namespace tessera::bucket
