// SPDX-License-Identifier: Apache-2.0
// Values of sizes: evaluating, solving, the symbols that a size mentions, rebuilding with others.
#include <algorithm>
#include <unordered_map>

#include "ir/size_arithmetic.hpp"
#include "ir/sizes.hpp"

namespace tessera::core {

namespace {

int64_t apply(uint32_t op, int64_t a, int64_t b) {
  switch (op) {
    case TSR_DIM_ADD: return checked_add(a, b);
    case TSR_DIM_SUB: return checked_sub(a, b);
    case TSR_DIM_MUL: return checked_mul(a, b);
    case TSR_DIM_FLOORDIV: return floor_div(a, b);
    case TSR_DIM_MOD: return floor_mod(a, b);
    case TSR_DIM_MIN: return std::min(a, b);
    default: return std::max(a, b);
  }
}

// As apply(), with a number for everything: what overflows becomes the nearest one, and what is divided by zero is 0.
int64_t apply_total(uint32_t op, int64_t a, int64_t b) {
  const auto clamp = [](__int128 v) { return std::max(saturate(v), kSmallestNumber); };
  switch (op) {
    case TSR_DIM_ADD: return clamp(static_cast<__int128>(a) + b);
    case TSR_DIM_SUB: return clamp(static_cast<__int128>(a) - b);
    case TSR_DIM_MUL: return clamp(static_cast<__int128>(a) * b);
    case TSR_DIM_FLOORDIV: return b == 0 ? 0 : floor_div(a, b);
    case TSR_DIM_MOD: return b == 0 ? 0 : floor_mod(a, b);
    default: return apply(op, a, b);
  }
}

// Values of the expressions that one evaluation has met. Kept per thread, so that an evaluation allocates nothing.
struct Values {
  struct Known {
    uint64_t run = 0;  // which evaluation the value belongs to
    int64_t value = 0;
  };
  std::vector<Known> known;
  std::vector<uint32_t> pending;
  uint64_t run = 0;
};

}  // namespace

int64_t Sizes::evaluate(tsr_dim d, std::span<const int64_t> values) const { return fold(d, values, apply); }
int64_t Sizes::estimate(tsr_dim d, std::span<const int64_t> values) const { return fold(d, values, apply_total); }

int64_t Sizes::fold(tsr_dim d, std::span<const int64_t> values, int64_t (*combine)(uint32_t, int64_t, int64_t)) const {
  // The value of what needs no evaluation: numbers, symbols. Most sizes are one of them, or combine two.
  const auto leaf = [&](tsr_dim x, int64_t* value) {
    if (TSR_DIM_IS_EXPR(x) && exprs_[TSR_DIM_EXPR_ID(x)].op != TSR_DIM_SYMBOL) return false;
    *value = TSR_DIM_IS_EXPR(x) ? values[exprs_[TSR_DIM_EXPR_ID(x)].symbol] : x;
    return true;
  };
  int64_t a, b;
  if (leaf(d, &a)) return a;
  const uint32_t root = TSR_DIM_EXPR_ID(d);
  if (leaf(exprs_[root].lhs, &a) && leaf(exprs_[root].rhs, &b)) return combine(exprs_[root].op, a, b);

  static thread_local Values scratch;
  if (scratch.known.size() < exprs_.size()) scratch.known.resize(exprs_.size());
  const uint64_t run = ++scratch.run;
  const auto have = [&](tsr_dim x, int64_t* value) {
    if (leaf(x, value)) return true;
    const Values::Known& k = scratch.known[TSR_DIM_EXPR_ID(x)];
    *value = k.value;
    return k.run == run;
  };
  scratch.pending.assign(1, root);
  while (!scratch.pending.empty()) {
    const uint32_t id = scratch.pending.back();
    const tsr_dim_expr& e = exprs_[id];
    const bool left = have(e.lhs, &a), right = have(e.rhs, &b);
    if (!right) scratch.pending.push_back(TSR_DIM_EXPR_ID(e.rhs));
    if (!left) scratch.pending.push_back(TSR_DIM_EXPR_ID(e.lhs));
    if (!left || !right) continue;
    scratch.known[id] = {run, combine(e.op, a, b)};
    scratch.pending.pop_back();
  }
  return scratch.known[root].value;
}

const std::vector<uint32_t>& Sizes::symbols_of(tsr_dim d) const {
  return symbol_sets_[TSR_DIM_IS_EXPR(d) ? properties_[TSR_DIM_EXPR_ID(d)].symbols : 0];
}

Sizes::Solution Sizes::solve(tsr_dim d, uint32_t symbol, int64_t value, std::span<const int64_t> values,
                             int64_t* solution) const {
  const auto mentions = [&](tsr_dim x) {
    const std::vector<uint32_t>& symbols = symbols_of(x);
    return std::binary_search(symbols.begin(), symbols.end(), symbol);
  };
  for (;;) {
    if (!TSR_DIM_IS_EXPR(d)) return Solution::kMany;
    const tsr_dim_expr& e = exprs_[TSR_DIM_EXPR_ID(d)];
    if (e.op == TSR_DIM_SYMBOL) {
      *solution = value;
      return e.symbol == symbol ? Solution::kFound : Solution::kMany;
    }
    const bool right = mentions(e.rhs);
    if (right == mentions(e.lhs)) return Solution::kMany;
    const int64_t other = evaluate(right ? e.lhs : e.rhs, values);
    switch (e.op) {
      case TSR_DIM_ADD: value = checked_sub(value, other); break;
      case TSR_DIM_SUB: value = right ? checked_sub(other, value) : checked_add(value, other); break;
      case TSR_DIM_MUL:
        if (other == 0 || value % other != 0) return Solution::kNone;
        value /= other;
        break;
      default: return Solution::kMany;
    }
    d = right ? e.rhs : e.lhs;
  }
}

void Sizes::collect_symbols(tsr_dim d, std::vector<uint32_t>& out) const {
  std::vector<tsr_dim> pending{d};
  while (!pending.empty()) {
    d = pending.back();
    pending.pop_back();
    const std::vector<uint32_t>& mine = symbols_of(d);
    // Only what mentions a new symbol is looked into: a path per symbol instead of the whole tree.
    const auto found = [&](uint32_t s) { return std::find(out.begin(), out.end(), s) != out.end(); };
    if (std::all_of(mine.begin(), mine.end(), found)) continue;
    const tsr_dim_expr& e = exprs_[TSR_DIM_EXPR_ID(d)];
    if (e.op == TSR_DIM_SYMBOL) {
      out.push_back(e.symbol);
      continue;
    }
    pending.push_back(e.rhs);
    pending.push_back(e.lhs);
  }
}

bool Sizes::is_unbacked(tsr_dim d) const {
  const std::vector<uint32_t>& used = symbols_of(d);
  return std::any_of(used.begin(), used.end(), [&](uint32_t s) { return symbols_[s].unbacked != 0; });
}

tsr_dim Sizes::import(const Sizes& other, tsr_dim d, const std::function<tsr_dim(uint32_t)>& map) {
  if (!TSR_DIM_IS_EXPR(d)) return d;
  std::unordered_map<tsr_dim, tsr_dim> done;
  std::vector<tsr_dim> pending{d};
  while (!pending.empty()) {
    const tsr_dim x = pending.back();
    const tsr_dim_expr& e = other.exprs_[TSR_DIM_EXPR_ID(x)];
    if (e.op == TSR_DIM_SYMBOL) {
      done[x] = map(e.symbol);
      pending.pop_back();
      continue;
    }
    const auto side = [&](tsr_dim y, tsr_dim* out) {
      const auto it = done.find(y);
      if (TSR_DIM_IS_EXPR(y) && it == done.end()) return pending.push_back(y), false;
      *out = TSR_DIM_IS_EXPR(y) ? it->second : y;
      return true;
    };
    tsr_dim a, b;
    if (!side(e.lhs, &a) || !side(e.rhs, &b)) continue;
    done[x] = make(static_cast<tsr_dim_op>(e.op), a, b);
    pending.pop_back();
  }
  return done[d];
}

}  // namespace tessera::core
