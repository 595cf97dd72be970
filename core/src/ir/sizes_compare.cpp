// SPDX-License-Identifier: Apache-2.0
// Ranges of sizes, comparison of sizes, assumptions.
#include <algorithm>

#include "ir/size_arithmetic.hpp"
#include "ir/sizes.hpp"
#include "log/log.hpp"
#include "support/error.hpp"

namespace tessera::core {

namespace {
// How many times one comparison looks into a min, a max or a floordiv. What it does not prove is a guard, or a min that stays.
constexpr int kBranches = 16;
}  // namespace

Range Sizes::range_of(const Polynomial& p) const {
  Range total{0, 0};
  for (const auto& [m, c] : p) {
    Range r{c, c};
    for (tsr_dim atom : m) r = mul_range(r, range(atom));
    total = add_range(total, r);
  }
  return total;
}

Range Sizes::range(tsr_dim d) const { return TSR_DIM_IS_EXPR(d) ? properties_[TSR_DIM_EXPR_ID(d)].range : Range{d, d}; }

Range Sizes::range_of(const tsr_dim_expr& e) const {
  if (e.op == TSR_DIM_SYMBOL) return {symbols_[e.symbol].min, symbols_[e.symbol].max};
  const Range a = range(e.lhs), b = range(e.rhs);
  switch (e.op) {
    case TSR_DIM_ADD: return add_range(a, b);
    case TSR_DIM_SUB: return add_range(a, mul_range(b, {-1, -1}));
    case TSR_DIM_MUL: return mul_range(a, b);
    case TSR_DIM_MIN: return {std::min(a.min, b.min), std::min(a.max, b.max)};
    case TSR_DIM_MAX: return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case TSR_DIM_MOD:
      if (b.min <= 0) return {INT64_MIN, INT64_MAX};
      return {0, std::min(is_infinite(b.max) ? INT64_MAX : b.max - 1, a.min >= 0 ? a.max : INT64_MAX)};
    case TSR_DIM_FLOORDIV: {
      if (b.min <= 0) return {INT64_MIN, INT64_MAX};
      auto div = [](int64_t x, int64_t y) { return is_infinite(x) ? x : is_infinite(y) ? (x < 0 ? -1 : 0) : floor_div(x, y); };
      const int64_t ends[] = {div(a.min, b.min), div(a.min, b.max), div(a.max, b.min), div(a.max, b.max)};
      return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
    }
    default: return {INT64_MIN, INT64_MAX};
  }
}

Sizes::Polynomial Sizes::branch_of(const Polynomial& p, tsr_dim atom, int64_t coefficient, tsr_dim branch) const {
  Polynomial q = p;
  q.erase(Monomial{atom});
  for (const auto& [m, c] : polynomial(branch)) accumulate(q, m, checked_mul(c, coefficient));
  return q;
}

bool Sizes::at_least(const Polynomial& p, int64_t bound) const {
  int budget = kBranches;
  return bounded(p, bound, true, budget);
}

bool Sizes::at_most(const Polynomial& p, int64_t bound) const {
  int budget = kBranches;
  return bounded(p, bound, false, budget);
}

bool Sizes::bounded(const Polynomial& p, int64_t bound, bool below, int& budget) const {
  const Range r = range_of(p);
  if (below ? r.min >= bound : r.max <= bound) return true;
  // The outermost first: in min(x, y) - y it is min, not what y is made of.
  const Monomial* outermost = nullptr;
  int64_t c = 0;
  for (const auto& [m, coefficient] : p) {
    if (m.size() != 1) continue;
    const uint32_t id = TSR_DIM_EXPR_ID(m[0]);
    const tsr_dim_expr& e = exprs_[id];
    const bool quotient = e.op == TSR_DIM_FLOORDIV && !TSR_DIM_IS_EXPR(e.rhs) && e.rhs > 0;
    if (e.op != TSR_DIM_MIN && e.op != TSR_DIM_MAX && !quotient) continue;
    if (outermost && properties_[id].height <= properties_[TSR_DIM_EXPR_ID((*outermost)[0])].height) continue;
    outermost = &m;
    c = coefficient;
  }
  if (!outermost || --budget < 0) return false;
  const tsr_dim atom = (*outermost)[0];
  const tsr_dim_expr& e = exprs_[TSR_DIM_EXPR_ID(atom)];
  if (e.op == TSR_DIM_FLOORDIV) {
    // k * floordiv(x, k) is at most x and at least x - (k - 1). And p >= bound says of integers that k * p > k * (bound - 1).
    const int64_t k = e.rhs;
    Polynomial q(MonomialLess{this});
    for (const auto& [m, coefficient] : p)
      if (m != *outermost) q[m] = checked_mul(coefficient, k);
    for (const auto& [m, coefficient] : polynomial(e.lhs)) accumulate(q, m, checked_mul(coefficient, c));
    if ((c > 0) == below) accumulate(q, {}, checked_mul(k - 1, c), true);
    const int64_t scaled =
        below ? checked_add(checked_mul(checked_sub(bound, 1), k), 1) : checked_sub(checked_mul(checked_add(bound, 1), k), 1);
    return bounded(q, scaled, below, budget);
  }
  const bool least = (e.op == TSR_DIM_MIN) == (c > 0);
  const auto branch = [&](tsr_dim d) { return bounded(branch_of(p, atom, c, d), bound, below, budget); };
  // The least of two is bounded below when both are, and above when one is.
  return least == below ? branch(e.lhs) && branch(e.rhs) : branch(e.rhs) || branch(e.lhs);
}

// a mod b == 0? For a number b, coefficients count modulo b only.
tsr_truth Sizes::divisible(const Polynomial& a, tsr_dim b) const {
  if (b == 0) return TSR_FALSE;
  Polynomial q(MonomialLess{this});
  if (divide(a, b, q)) return TSR_TRUE;
  const bool number = !TSR_DIM_IS_EXPR(b) && b > 0;
  auto reduced = [&](const Polynomial& p) {
    Polynomial r(MonomialLess{this});
    for (const auto& [m, c] : p)
      if (const int64_t k = number ? floor_mod(c, b) : c) r[m] = k;
    return r;
  };
  const Polynomial rest = reduced(a);
  if (rest.empty()) return TSR_TRUE;
  if (number && rest.size() == 1 && rest.begin()->first.empty()) return TSR_FALSE;
  if (use_assumptions_)
    for (const uint32_t index : divisible_) {
      const Assumption& s = assumptions_[index];
      if (s.b != b && !(number && !TSR_DIM_IS_EXPR(s.b) && s.b % b == 0)) continue;
      if (reduced(polynomial(s.a)) == rest) return TSR_TRUE;
    }
  return TSR_UNKNOWN;
}

tsr_truth Sizes::compare(tsr_relation r, tsr_dim a, tsr_dim b) const {
  try {
    return decide(r, a, b);
  } catch (const Error&) {
    return TSR_UNKNOWN;
  }
}

Sizes::Terms Sizes::terms_of(const Polynomial& p) const {
  Terms out;
  auto append = [&](uint64_t v) { out.key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (const auto& [m, c] : p) {
    if (m.empty()) {
      out.constant = c;
      continue;
    }
    if (out.key.empty()) out.sign = c < 0 ? -1 : 1;
    append(m.size());
    for (const tsr_dim atom : m) append(static_cast<uint64_t>(atom));
    append(static_cast<uint64_t>(out.sign) * static_cast<uint64_t>(c));
  }
  return out;
}

Sizes::Terms Sizes::terms_of(const Assumption& s) const {
  if (s.relation == TSR_DIVISIBLE) return {};
  try {
    return terms_of(difference(s.a, s.b));
  } catch (const Error&) {  // it overflows, and so would every comparison with it
    return {};
  }
}

void Sizes::learn(const Assumption& s) {
  const Terms p = terms_of(s);
  if (p.key.empty()) return;
  TermFacts& facts = by_terms_[p.key];
  Range r = facts.states.empty() ? Range{INT64_MIN, INT64_MAX} : facts.states.back();
  // constant + sign * t REL 0 says of t that it REL `bound`, the other way round for a negative sign.
  const int64_t bound = -p.constant * p.sign;
  const bool less = s.relation == TSR_LT || s.relation == TSR_LE, greater = s.relation == TSR_GT || s.relation == TSR_GE;
  const int64_t beyond = s.relation == TSR_LT || s.relation == TSR_GT ? 1 : 0;
  if (s.relation == TSR_EQ || (p.sign > 0 ? less : greater)) r.max = std::min(r.max, saturate(__int128{bound} - beyond));
  if (s.relation == TSR_EQ || (p.sign > 0 ? greater : less)) r.min = std::max(r.min, saturate(__int128{bound} + beyond));
  if (s.relation == TSR_NE) ++facts.excluded[bound];
  facts.states.push_back(r);
}

void Sizes::forget(const Assumption& s) {
  const Terms p = terms_of(s);
  const auto it = by_terms_.find(p.key);
  if (p.key.empty() || it == by_terms_.end()) return;
  TermFacts& facts = it->second;
  if (s.relation == TSR_NE) {
    const auto at = facts.excluded.find(-p.constant * p.sign);
    if (--at->second == 0) facts.excluded.erase(at);
  }
  facts.states.pop_back();
  if (facts.states.empty()) by_terms_.erase(it);
}

tsr_truth Sizes::decide(tsr_relation r, tsr_dim a, tsr_dim b) const {
  if (!TSR_DIM_IS_EXPR(a) && !TSR_DIM_IS_EXPR(b)) return holds(r, a, b) ? TSR_TRUE : TSR_FALSE;
  if (r == TSR_DIVISIBLE) return divisible(polynomial(a), b);
  if (a == b) return holds(r, 0, 0) ? TSR_TRUE : TSR_FALSE;

  Polynomial d = difference(a, b);
  Range range = range_of(d);
  bool nonzero = false;
  if (use_assumptions_ && !by_terms_.empty()) {
    const Terms p = terms_of(d);
    if (const auto it = p.key.empty() ? by_terms_.end() : by_terms_.find(p.key); it != by_terms_.end()) {
      const Range bound = add_range({p.constant, p.constant}, mul_range(it->second.states.back(), {p.sign, p.sign}));
      range.min = std::max(range.min, bound.min);
      range.max = std::min(range.max, bound.max);
      nonzero = it->second.excluded.contains(-p.constant * p.sign);
    }
  }
  switch (r) {
    case TSR_LE:
    case TSR_GT:
      if (range.max > 0 && range.min <= 0) {
        if (at_most(d, 0))
          range.max = 0;
        else if (at_least(d, 1))
          range.min = 1;
      }
      break;
    case TSR_LT:
    case TSR_GE:
      if (range.max >= 0 && range.min < 0) {
        if (at_least(d, 0))
          range.min = 0;
        else if (at_most(d, -1))
          range.max = -1;
      }
      break;
    default:
      if (range.min < 0 && at_least(d, 0)) range.min = 0;
      if (range.max > 0 && at_most(d, 0)) range.max = 0;
      if (range.min == 0 && at_least(d, 1)) range.min = 1;
      if (range.max == 0 && range.min < 0 && at_most(d, -1)) range.max = -1;
  }
  const bool always_less = range.max<0, always_greater = range.min> 0;
  const bool zero = range.min == 0 && range.max == 0;
  nonzero = nonzero || always_less || always_greater;
  switch (r) {
    case TSR_EQ: return zero ? TSR_TRUE : nonzero ? TSR_FALSE : TSR_UNKNOWN;
    case TSR_NE: return zero ? TSR_FALSE : nonzero ? TSR_TRUE : TSR_UNKNOWN;
    case TSR_LT: return always_less ? TSR_TRUE : range.min >= 0 ? TSR_FALSE : TSR_UNKNOWN;
    case TSR_LE: return range.max <= 0 ? TSR_TRUE : always_greater ? TSR_FALSE : TSR_UNKNOWN;
    case TSR_GT: return always_greater ? TSR_TRUE : range.max <= 0 ? TSR_FALSE : TSR_UNKNOWN;
    case TSR_GE: return range.min >= 0 ? TSR_TRUE : always_less ? TSR_FALSE : TSR_UNKNOWN;
    case TSR_DIVISIBLE: break;
  }
  return TSR_UNKNOWN;
}

void Sizes::require(tsr_relation r, tsr_dim a, tsr_dim b, std::string why) {
  static const char* const kText[] = {"==", "!=", "<", "<=", ">", ">=", "divisible by"};
  switch (compare(r, a, b)) {
    case TSR_TRUE: return;
    case TSR_FALSE:
      throw user_error("TSR-S004", why + ": " + print(a) + " " + kText[r] + " " + print(b) + " does not hold",
                       "give sizes for which it holds");
    case TSR_UNKNOWN:
      if (log_enabled(Artifact::kSymNode))
        log_write(Artifact::kSymNode,
                  "assumed " + print(a) + " " + kText[r] + " " + print(b) + (why.empty() ? "" : ": " + why));
      assumptions_.push_back({r, a, b, std::move(why), {}});
      if (r == TSR_DIVISIBLE) divisible_.push_back(static_cast<uint32_t>(assumptions_.size() - 1));
      learn(assumptions_.back());
  }
}

void Sizes::place_assumptions(size_t first, const std::string& where) {
  for (size_t i = first; i < assumptions_.size(); ++i)
    if (assumptions_[i].where.empty()) assumptions_[i].where = where;
}

bool Sizes::holds(tsr_relation r, int64_t a, int64_t b) {
  switch (r) {
    case TSR_EQ: return a == b;
    case TSR_NE: return a != b;
    case TSR_LT: return a < b;
    case TSR_LE: return a <= b;
    case TSR_GT: return a > b;
    case TSR_GE: return a >= b;
    case TSR_DIVISIBLE: return b != 0 && (b == -1 || a % b == 0);
  }
  return false;
}

}  // namespace tessera::core
