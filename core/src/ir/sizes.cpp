// SPDX-License-Identifier: Apache-2.0
#include "ir/sizes.hpp"

#include <algorithm>

#include "ir/size_arithmetic.hpp"
#include "log/log.hpp"
#include "support/error.hpp"

namespace tessera::core {
namespace {

// A product of n sums of two terms has 2^n terms when multiplied out; real shapes stay far below this.
constexpr size_t kMaxTerms = 512;
// A sum of more terms than this counts as one term of the sums around it, so that a chain of them takes linear time and text.
constexpr uint32_t kFlatTerms = 32;
// A divisor beyond this is not multiplied with another one.
constexpr int64_t kLargestDivisor = int64_t{1} << 31;

bool is_atom(uint32_t op) { return op != TSR_DIM_ADD && op != TSR_DIM_SUB && op != TSR_DIM_MUL; }

// The order of operators among expressions: symbols first, then as their names stand in the alphabet, sums and products last.
uint32_t order_of(uint32_t op) {
  switch (op) {
    case TSR_DIM_SYMBOL: return 0;
    case TSR_DIM_FLOORDIV: return 1;
    case TSR_DIM_MAX: return 2;
    case TSR_DIM_MIN: return 3;
    case TSR_DIM_MOD: return 4;
    default: return 4 + op;
  }
}

uint32_t capped_sum(uint32_t a, uint32_t b) { return a > UINT32_MAX - b ? UINT32_MAX : a + b; }

}  // namespace

size_t Sizes::KeyHash::operator()(const Key& k) const {
  size_t h = k.op * 0x9e3779b97f4a7c15ull + k.symbol;
  h = (h ^ static_cast<size_t>(k.a)) * 0xff51afd7ed558ccdull;
  h = (h ^ (h >> 32) ^ static_cast<size_t>(k.b)) * 0xc4ceb9fe1a85ec53ull;
  return h ^ (h >> 29);
}

tsr_dim Sizes::intern(tsr_dim_op op, uint32_t symbol, tsr_dim a, tsr_dim b) {
  const Key key{static_cast<uint32_t>(op), symbol, a, b};
  if (auto it = interned_.find(key); it != interned_.end()) return it->second;
  const tsr_dim d = TSR_DIM_OF_EXPR(exprs_.size());
  exprs_.push_back({static_cast<uint32_t>(op), symbol, a, b});
  properties_.push_back(properties_of(exprs_.back()));
  interned_.emplace(key, d);
  return d;
}

Sizes::Properties Sizes::properties_of(const tsr_dim_expr& e) {
  Properties f;
  f.range = range_of(e);
  if (e.op == TSR_DIM_SYMBOL) {
    f.symbols = intern_set({e.symbol});
    f.atom = true;
    return f;
  }
  const auto of = [this](tsr_dim d) { return TSR_DIM_IS_EXPR(d) ? properties_[TSR_DIM_EXPR_ID(d)] : Properties(); };
  const Properties a = of(e.lhs), b = of(e.rhs);
  const auto counted = [&](tsr_dim d, const Properties& x) { return TSR_DIM_IS_EXPR(d) && is_large(d) ? 1 : x.operators; };
  f.symbols = union_of(a.symbols, b.symbols);
  f.height = 1 + std::max(a.height, b.height);
  f.tree_operators = capped_sum(1, capped_sum(a.tree_operators, b.tree_operators));
  f.operators = capped_sum(1, capped_sum(counted(e.lhs, a), counted(e.rhs, b)));
  if (e.op == TSR_DIM_ADD || e.op == TSR_DIM_SUB) f.terms = a.terms + b.terms;
  f.atom = is_atom(e.op) || f.terms > kFlatTerms;
  if (f.atom) f.terms = 1;
  return f;
}

bool Sizes::is_large(tsr_dim d) const {
  return properties_[TSR_DIM_EXPR_ID(d)].atom && properties_[TSR_DIM_EXPR_ID(d)].operators > kLargeText;
}

uint32_t Sizes::intern_set(std::vector<uint32_t> sorted) {
  if (sorted.empty()) return 0;
  const auto [it, fresh] = set_ids_.try_emplace(sorted, static_cast<uint32_t>(symbol_sets_.size()));
  if (fresh) symbol_sets_.push_back(std::move(sorted));
  return it->second;
}

uint32_t Sizes::union_of(uint32_t a, uint32_t b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  const std::vector<uint32_t>&x = symbol_sets_[a], &y = symbol_sets_[b];
  std::vector<uint32_t> both;
  std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
  return intern_set(std::move(both));
}

tsr_dim Sizes::symbol(std::string name, int64_t min, int64_t max, bool unbacked, int64_t hint) {
  if (by_name_.count(name)) throw user_error("TSR-S002", "symbol '" + name + "' is declared twice", "use another name");
  auto owned = std::make_shared<const std::string>(std::move(name));
  tsr_symbol s{};
  s.name = owned->c_str();
  s.min = min;
  s.max = max;
  s.hint = hint;
  s.unbacked = unbacked;
  symbols_.push_back(s);
  const tsr_dim d = intern(TSR_DIM_SYMBOL, static_cast<uint32_t>(symbols_.size() - 1), 0, 0);
  by_name_.emplace(*owned, d);
  strings_.push_back(std::move(owned));
  return d;
}

tsr_dim Sizes::fresh(std::string_view prefix, int64_t min, int64_t max, bool unbacked, int64_t hint) {
  for (size_t i = symbols_.size();; ++i) {
    std::string name = std::string(prefix) + std::to_string(i);
    if (by_name_.count(name)) continue;
    if (log_enabled(Artifact::kSymNode))
      log_write(Artifact::kSymNode, "symbol " + name + (unbacked ? ", computed from data" : "") + ", at least " +
                                        std::to_string(min) + (max == INT64_MAX ? "" : ", at most " + std::to_string(max)) +
                                        (hint < 0 ? "" : ", is " + std::to_string(hint) + " now"));
    return symbol(std::move(name), min, max, unbacked, hint);
  }
}

tsr_dim Sizes::find(std::string_view name) const {
  auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? -1 : it->second;
}

void Sizes::observe(uint32_t symbol, int64_t value) {
  symbols_[symbol].hint = value;
  symbols_[symbol].unbacked = 0;
}

void Sizes::restore(const Checkpoint& before) {
  while (!divisible_.empty() && divisible_.back() >= before.assumptions) divisible_.pop_back();
  for (; assumptions_.size() > before.assumptions; assumptions_.pop_back()) forget(assumptions_.back());
  for (; made_.size() > before.made; made_.pop_back()) results_.erase(made_.back());
  for (; exprs_.size() > before.exprs; exprs_.pop_back(), properties_.pop_back()) {
    const tsr_dim_expr& e = exprs_.back();
    interned_.erase(Key{e.op, e.symbol, e.lhs, e.rhs});
  }
  for (; symbols_.size() > before.symbols; symbols_.pop_back(), strings_.pop_back()) by_name_.erase(*strings_.back());
}

// ------------------------------------------------------------------------------------------------------- normal form

// By structure, not by handle: the order must not depend on what was interned first, or printing would not round-trip. Equal
// expressions are equal handles, so only the first pair of operands that differ is compared: one path down, not the whole tree.
bool Sizes::atom_less(tsr_dim a, tsr_dim b) const {
  while (a != b) {
    if (!TSR_DIM_IS_EXPR(a) || !TSR_DIM_IS_EXPR(b))
      return TSR_DIM_IS_EXPR(a) == TSR_DIM_IS_EXPR(b) ? a < b : !TSR_DIM_IS_EXPR(a);
    const uint32_t i = TSR_DIM_EXPR_ID(a), j = TSR_DIM_EXPR_ID(b);
    const tsr_dim_expr &x = exprs_[i], &y = exprs_[j];
    if (x.op != y.op) return order_of(x.op) < order_of(y.op);
    if (x.op == TSR_DIM_SYMBOL) return x.symbol < y.symbol;
    if (properties_[i].height != properties_[j].height) return properties_[i].height < properties_[j].height;
    const bool left = x.lhs != y.lhs;
    a = left ? x.lhs : x.rhs;
    b = left ? y.lhs : y.rhs;
  }
  return false;
}

bool Sizes::MonomialLess::operator()(const Monomial& a, const Monomial& b) const {
  // Higher degree first, the constant last: "s0*s1 + s0 + 1".
  if (a.size() != b.size()) return a.size() > b.size();
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) return sizes->atom_less(a[i], b[i]);
  return false;
}

void Sizes::accumulate(Polynomial& p, const Monomial& m, int64_t coefficient, bool subtract) const {
  const auto [it, fresh] = p.try_emplace(m, 0);
  it->second = subtract ? checked_sub(it->second, coefficient) : checked_add(it->second, coefficient);
  if (it->second == 0)
    p.erase(it);
  else if (fresh && p.size() > kMaxTerms)
    throw user_error("TSR-S005", "a size has more than " + std::to_string(kMaxTerms) + " terms when multiplied out",
                     "use simpler sizes");
}

Sizes::Polynomial Sizes::times(const Polynomial& a, const Polynomial& b) const {
  Polynomial p(MonomialLess{this});
  for (const auto& [ma, ca] : a)
    for (const auto& [mb, cb] : b) {
      Monomial m(ma.size() + mb.size());
      std::merge(ma.begin(), ma.end(), mb.begin(), mb.end(), m.begin(),
                 [this](tsr_dim x, tsr_dim y) { return atom_less(x, y); });
      accumulate(p, m, checked_mul(ca, cb));
    }
  return p;
}

Sizes::Polynomial Sizes::polynomial(tsr_dim d) const {
  Polynomial p(MonomialLess{this});
  if (!TSR_DIM_IS_EXPR(d)) {
    if (d != 0) p[{}] = d;
    return p;
  }
  const tsr_dim_expr e = exprs_[TSR_DIM_EXPR_ID(d)];
  if (properties_[TSR_DIM_EXPR_ID(d)].atom) {
    p[{d}] = 1;
    return p;
  }
  switch (e.op) {
    case TSR_DIM_ADD:
    case TSR_DIM_SUB:
      p = polynomial(e.lhs);
      for (const auto& [m, c] : polynomial(e.rhs)) accumulate(p, m, c, e.op == TSR_DIM_SUB);
      return p;
    default: return times(polynomial(e.lhs), polynomial(e.rhs));
  }
}

Sizes::Polynomial Sizes::difference(tsr_dim a, tsr_dim b) const {
  Polynomial p = polynomial(a);
  for (const auto& [m, c] : polynomial(b)) accumulate(p, m, c, true);
  return p;
}

tsr_dim Sizes::build(const Polynomial& p) {
  tsr_dim sum = 0;
  bool first = true;
  for (auto at = p.begin(); at != p.end(); ++at) {
    if (std::distance(p.begin(), at) > kFlatTerms && properties_[TSR_DIM_EXPR_ID(sum)].atom) {
      Polynomial rest(at, p.end(), MonomialLess{this});
      rest[{sum}] = 1;
      return build(rest);
    }
    const auto& [m, c] = *at;
    tsr_dim term = c;
    if (!m.empty()) {
      term = m[0];
      for (size_t i = 1; i < m.size(); ++i) term = intern(TSR_DIM_MUL, 0, term, m[i]);
      if (c != 1) term = intern(TSR_DIM_MUL, 0, term, c);
    }
    sum = first ? term : intern(TSR_DIM_ADD, 0, sum, term);
    first = false;
  }
  return sum;
}

bool Sizes::divide(const Polynomial& a, tsr_dim b, Polynomial& quotient) const {
  const Polynomial pb = polynomial(b);
  if (pb.size() != 1) return false;
  const auto& [mb, cb] = *pb.begin();
  for (const auto& [m, c] : a) {
    if (c % cb != 0) return false;
    Monomial rest = m;
    for (tsr_dim atom : mb) {
      auto it = std::find(rest.begin(), rest.end(), atom);
      if (it == rest.end()) return false;
      rest.erase(it);
    }
    quotient[rest] = c / cb;
  }
  return true;
}

tsr_dim Sizes::make(tsr_dim_op op, tsr_dim a, tsr_dim b) {
  const bool numbers = !TSR_DIM_IS_EXPR(a) && !TSR_DIM_IS_EXPR(b);
  if (numbers) return simplified(op, a, b);
  // Inference of the same node again asks for the same sizes again.
  const Key key{static_cast<uint32_t>(op), 0, a, b};
  if (const auto it = results_.find(key); it != results_.end()) return it->second;
  const tsr_dim d = simplified(op, a, b);
  results_.emplace(key, d);
  made_.push_back(key);
  return d;
}

tsr_dim Sizes::simplified(tsr_dim_op op, tsr_dim a, tsr_dim b) {
  const WithoutAssumptions scope(*this);
  const bool numbers = !TSR_DIM_IS_EXPR(a) && !TSR_DIM_IS_EXPR(b);
  switch (op) {
    case TSR_DIM_ADD:
    case TSR_DIM_SUB:
    case TSR_DIM_MUL: {
      if (numbers) return op == TSR_DIM_ADD ? checked_add(a, b) : op == TSR_DIM_SUB ? checked_sub(a, b) : checked_mul(a, b);
      if (op != TSR_DIM_MUL && b == 0) return a;
      if (op == TSR_DIM_ADD && a == 0) return b;
      if (op == TSR_DIM_MUL && (a == 0 || b == 0)) return 0;
      if (op == TSR_DIM_MUL && a == 1) return b;
      if (op == TSR_DIM_MUL && b == 1) return a;
      // Interning the raw form first would leave unnormalised handles behind; go through the polynomial directly.
      if (op == TSR_DIM_MUL) return build(times(polynomial(a), polynomial(b)));
      Polynomial p = polynomial(a);
      for (const auto& [m, c] : polynomial(b)) accumulate(p, m, c, op == TSR_DIM_SUB);
      return build(p);
    }
    case TSR_DIM_FLOORDIV: {
      if (numbers) return floor_div(a, b);
      if (b == 0) floor_div(0, 0);
      if (b == 1) return a;
      if (a == 0) return 0;
      Polynomial q(MonomialLess{this});
      const Polynomial pa = polynomial(a);
      if (divide(pa, b, q)) return build(q);
      if (!TSR_DIM_IS_EXPR(b) && b > 0) {  // (k*x + r) floordiv k == x + r floordiv k
        Polynomial whole(MonomialLess{this}), rest(MonomialLess{this});
        for (const auto& [m, c] : pa) {
          const int64_t quotient = floor_div(c, b), remainder = floor_mod(c, b);
          if (m.empty()) {
            if (quotient) whole[m] = quotient;
            if (remainder) rest[m] = remainder;
          } else if (remainder == 0) {
            whole[m] = quotient;
          } else {
            rest[m] = c;
          }
        }
        const Range r = range_of(rest);
        if (r.min >= 0 && r.max < b) return build(whole);
        const tsr_dim quotient = nested_quotient(rest, b);
        return whole.empty() ? quotient : make(TSR_DIM_ADD, build(whole), quotient);
      }
      return intern(TSR_DIM_FLOORDIV, 0, a, b);
    }
    case TSR_DIM_MOD: {
      if (numbers) return floor_mod(a, b);
      if (b == 0) floor_mod(0, 0);
      if (b == 1 || a == 0) return 0;
      const Polynomial pa = polynomial(a);
      if (divisible(pa, b) == TSR_TRUE) return 0;
      if (!TSR_DIM_IS_EXPR(b) && b > 0) {
        Polynomial rest(MonomialLess{this});
        for (const auto& [m, c] : pa)
          if (const int64_t r = floor_mod(c, b)) rest[m] = r;
        const Range r = range_of(rest);
        if (r.min >= 0 && r.max < b) return build(rest);
        return intern(TSR_DIM_MOD, 0, build(rest), b);
      }
      return intern(TSR_DIM_MOD, 0, a, b);
    }
    case TSR_DIM_MIN:
    case TSR_DIM_MAX: return extremum(op, a, b);
    case TSR_DIM_SYMBOL: break;
  }
  throw bug("TSR-B004", "unknown size operation " + std::to_string(static_cast<int>(op)));
}

// floordiv(p, b), where (x floordiv a + y) floordiv b is (x + a*y) floordiv (a*b): a chain of strides stays one division.
tsr_dim Sizes::nested_quotient(const Polynomial& p, int64_t b) {
  tsr_dim inner = 0;
  for (const auto& [m, c] : p)
    for (const tsr_dim atom : m) {
      if (exprs_[TSR_DIM_EXPR_ID(atom)].op != TSR_DIM_FLOORDIV) continue;
      const tsr_dim divisor = exprs_[TSR_DIM_EXPR_ID(atom)].rhs;
      const bool alone = inner == 0 && m.size() == 1 && c == 1;
      if (!alone || TSR_DIM_IS_EXPR(divisor) || divisor <= 0 || divisor > kLargestDivisor / b)
        return intern(TSR_DIM_FLOORDIV, 0, build(p), b);
      inner = atom;
    }
  for (const auto& [m, c] : p)
    if (c > kLargestDivisor || c < -kLargestDivisor) return intern(TSR_DIM_FLOORDIV, 0, build(p), b);
  if (inner == 0) return intern(TSR_DIM_FLOORDIV, 0, build(p), b);
  const tsr_dim_expr e = exprs_[TSR_DIM_EXPR_ID(inner)];
  Polynomial sum = polynomial(e.lhs);
  for (const auto& [m, c] : p)
    if (m.size() != 1 || m[0] != inner) accumulate(sum, m, checked_mul(c, e.rhs));
  return make(TSR_DIM_FLOORDIV, build(sum), e.rhs * b);
}

tsr_dim Sizes::extremum(tsr_dim_op op, tsr_dim a, tsr_dim b) {
  const bool least = op == TSR_DIM_MIN;
  for (;;) {
    if (!TSR_DIM_IS_EXPR(a) && !TSR_DIM_IS_EXPR(b)) return least ? std::min(a, b) : std::max(a, b);
    if (compare(TSR_LE, a, b) == TSR_TRUE) return least ? a : b;
    if (compare(TSR_GE, a, b) == TSR_TRUE) return least ? b : a;
    if (const tsr_dim reduced = without_dominated(op, a, b); reduced != a) {
      a = reduced;
    } else if (const tsr_dim other = without_dominated(op, b, a); other != b) {
      b = other;
    } else {
      break;
    }
  }
  // Commutative: numbers last, expressions in canonical order.
  if (!TSR_DIM_IS_EXPR(a) || (TSR_DIM_IS_EXPR(b) && atom_less(b, a))) std::swap(a, b);
  return intern(op, 0, a, b);
}

// `a` as far as it decides op(a, b): max(max(x, 0) - 1, 0) is max(x - 1, 0), for where 0 - 1 is chosen 0 is greater.
tsr_dim Sizes::without_dominated(tsr_dim_op op, tsr_dim a, tsr_dim b) {
  const Polynomial p = polynomial(a);
  for (const auto& [m, c] : p) {
    if (m.size() != 1) continue;
    const tsr_dim_expr e = exprs_[TSR_DIM_EXPR_ID(m[0])];
    if (e.op != TSR_DIM_MIN && e.op != TSR_DIM_MAX) continue;
    if ((c > 0) != (e.op == op)) continue;  // c * min is the greater of both products for a negative c
    for (const auto& [branch, other] : {std::pair(e.lhs, e.rhs), std::pair(e.rhs, e.lhs)}) {
      try {
        const Polynomial q = branch_of(p, m[0], c, branch);
        Polynomial d = q;  // q - b
        for (const auto& [mb, cb] : polynomial(b)) accumulate(d, mb, cb, true);
        if (op == TSR_DIM_MAX ? at_most(d, 0) : at_least(d, 0)) return build(branch_of(p, m[0], c, other));
      } catch (const Error&) {  // a number of that branch overflows
      }
    }
  }
  return a;
}

tsr_dim Sizes::product(std::span<const tsr_dim> dims) {
  tsr_dim p = 1;
  for (tsr_dim d : dims) p = mul(p, d);
  return p;
}

}  // namespace tessera::core
