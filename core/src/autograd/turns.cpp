// SPDX-License-Identifier: Apache-2.0
#include "autograd/turns.hpp"

#include <cstring>
#include <string_view>

#include "ir/graph.hpp"
#include "ir/records.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::core {

namespace {

constexpr int64_t kMostTurns = int64_t{1} << 20;  // each one's carried values are kept

class Counter {
 public:
  Counter(const Graph& g, tsr_id node)
      : g_(g), loop_(g.node(node)), carried_(static_cast<uint32_t>(g.attr(node, "carried")->i)) {}

  std::optional<int64_t> turns() const {
    const tsr_region& condition = g_.region(loop_.regions[0]);
    const tsr_id def = g_.value(condition.outputs[0]).def_node;
    if (def == TSR_NONE) return std::nullopt;
    const tsr_node& compare = g_.node(def);
    for (uint32_t side = 0; side < 2 && compare.num_operands == 2; ++side) {
      const std::optional<uint32_t> k = carried(loop_.regions[0], compare.operands[side]);
      const std::optional<int64_t> limit = number(compare.operands[1 - side]);
      if (k && limit) return count(*k, *limit, compare.op, side == 1);
    }
    return std::nullopt;
  }

 private:
  // The number of the carried value that `v` is in a region.
  std::optional<uint32_t> carried(tsr_id region, tsr_id v) const {
    const tsr_value& x = g_.value(v);
    if (x.def_node != TSR_NONE || x.region != region || x.def_index >= carried_) return std::nullopt;
    return x.def_index;
  }

  // A constant of the graph or of a region, or an invariant of the loop that is one.
  std::optional<int64_t> number(tsr_id v) const {
    const tsr_value& x = g_.value(v);
    if (!is_int(x.type->dtype) || x.type->rank != 0) return std::nullopt;
    if (x.def_node == TSR_NONE) {
      const bool invariant = (x.region == loop_.regions[0] || x.region == loop_.regions[1]) && x.def_index >= carried_;
      return invariant ? number(loop_.operands[x.def_index]) : std::nullopt;
    }
    const tsr_node& def = g_.node(x.def_node);
    if (std::strcmp(def.op, "cast") == 0) return number(def.operands[0]);
    if (!g_.record_of(x.def_node).has(kConstant)) return std::nullopt;
    const tsr_attr* a = g_.attr(x.def_node, "value");
    if (!a || a->kind != TSR_ATTR_TENSOR) return std::nullopt;
    return load_as<int64_t>(a->tensor->dtype, a->tensor->data, 0);
  }

  // What a turn adds to carried value `k`.
  std::optional<int64_t> step(uint32_t k) const {
    const tsr_id v = g_.region(loop_.regions[1]).outputs[k], def = g_.value(v).def_node;
    if (def == TSR_NONE) return std::nullopt;
    const tsr_node& n = g_.node(def);
    const bool adds = std::strcmp(n.op, "add") == 0, subtracts = std::strcmp(n.op, "sub") == 0;
    if (!adds && !subtracts) return std::nullopt;
    if (carried(loop_.regions[1], n.operands[0]) == k) {
      const std::optional<int64_t> by = number(n.operands[1]);
      if (!by || *by == INT64_MIN) return std::nullopt;
      return adds ? *by : -*by;
    }
    if (adds && carried(loop_.regions[1], n.operands[1]) == k) return number(n.operands[0]);
    return std::nullopt;
  }

  std::optional<int64_t> count(uint32_t k, int64_t limit, std::string_view op, bool turned) const {
    const std::optional<int64_t> start = number(loop_.operands[k]), by = step(k);
    if (!start || !by) return std::nullopt;
    const auto goes_on = [&](int64_t at) -> std::optional<bool> {
      const int64_t a = turned ? limit : at, b = turned ? at : limit;
      if (op == "lt") return a < b;
      if (op == "le") return a <= b;
      if (op == "gt") return a > b;
      if (op == "ge") return a >= b;
      if (op == "ne") return a != b;
      return std::nullopt;
    };
    // The counter may not wrap on the way.
    const uint32_t dtype = g_.value(loop_.operands[k]).type->dtype;
    const int bits = dtype_bits(dtype);
    const bool is_signed = is_signed_int(dtype);
    const int64_t least = is_signed ? (bits == 64 ? INT64_MIN : -(int64_t{1} << (bits - 1))) : 0,
                  most = is_signed ? (bits == 64 ? INT64_MAX : (int64_t{1} << (bits - 1)) - 1)
                                   : (bits >= 63 ? INT64_MAX : (int64_t{1} << bits) - 1);
    int64_t at = *start;
    for (int64_t turns = 0; turns <= kMostTurns; ++turns) {
      const std::optional<bool> more = goes_on(at);
      if (!more) return std::nullopt;
      if (!*more) return turns;
      if (__builtin_add_overflow(at, *by, &at) || at < least || at > most) return std::nullopt;
    }
    return std::nullopt;
  }

  const Graph& g_;
  const tsr_node& loop_;
  const uint32_t carried_;
};

}  // namespace

std::optional<int64_t> number_of_turns(const Graph& g, tsr_id node) { return Counter(g, node).turns(); }

}  // namespace tessera::core
