// SPDX-License-Identifier: Apache-2.0
#include "ir/sizes.hpp"

#include <algorithm>

#include "log/log.hpp"
#include "support/error.hpp"

namespace tessera::core {
namespace {

constexpr int64_t kMin = INT64_MIN, kMax = INT64_MAX;
// Handles live in the lowest 2^32 values, so a number there cannot be told from a handle: it counts as overflow.
constexpr int64_t kSmallestNumber = INT64_MIN + (int64_t{1} << 32);
// A product of n sums of two terms has 2^n terms when multiplied out; real shapes stay far below this.
constexpr size_t kMaxTerms = 512;

[[noreturn]] void overflow(const std::string& what) {
  throw user_error("TSR-S001", "size arithmetic overflows 64 bits: " + what, "use smaller sizes");
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r) || r < kSmallestNumber) overflow(std::to_string(a) + " + " + std::to_string(b));
  return r;
}
int64_t checked_sub(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r) || r < kSmallestNumber) overflow(std::to_string(a) + " - " + std::to_string(b));
  return r;
}
int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r) || r < kSmallestNumber) overflow(std::to_string(a) + " * " + std::to_string(b));
  return r;
}
int64_t floor_div(int64_t a, int64_t b) {
  if (b == 0) throw user_error("TSR-S003", "size expression divides by zero: floordiv(" + std::to_string(a) + ", 0)");
  if (b == -1) return checked_sub(0, a);  // INT64_MIN / -1 traps
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0) throw user_error("TSR-S003", "size expression divides by zero: mod(" + std::to_string(a) + ", 0)");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

// Interval arithmetic saturates: an unbounded end stays unbounded.
int64_t saturate(__int128 v) { return v > kMax ? kMax : v < kMin ? kMin : static_cast<int64_t>(v); }
bool infinite(int64_t v) { return v == kMin || v == kMax; }
int64_t add_end(int64_t a, int64_t b, int64_t unbounded) {
  if (infinite(a) || infinite(b)) return unbounded;
  return saturate(static_cast<__int128>(a) + b);
}
int64_t mul_end(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  if (infinite(a) || infinite(b)) return ((a < 0) != (b < 0)) ? kMin : kMax;
  return saturate(static_cast<__int128>(a) * b);
}
Range add_range(Range a, Range b) { return {add_end(a.min, b.min, kMin), add_end(a.max, b.max, kMax)}; }
Range mul_range(Range a, Range b) {
  const int64_t e[] = {mul_end(a.min, b.min), mul_end(a.min, b.max), mul_end(a.max, b.min), mul_end(a.max, b.max)};
  return {*std::min_element(e, e + 4), *std::max_element(e, e + 4)};
}

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
  interned_.emplace(key, d);
  return d;
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
  for (; assumptions_.size() > before.assumptions; assumptions_.pop_back())
    if (const auto it = by_terms_.find(terms_key(assumptions_.back())); it != by_terms_.end()) {
      it->second.pop_back();
      if (it->second.empty()) by_terms_.erase(it);
    }
  for (; exprs_.size() > before.exprs; exprs_.pop_back()) {
    const tsr_dim_expr& e = exprs_.back();
    interned_.erase(Key{e.op, e.symbol, e.lhs, e.rhs});
  }
  for (; symbols_.size() > before.symbols; symbols_.pop_back(), strings_.pop_back()) by_name_.erase(*strings_.back());
}

// ------------------------------------------------------------------------------------------------------- normal form

bool Sizes::atom_less(tsr_dim a, tsr_dim b) const {
  if (a == b) return false;
  const tsr_dim_expr& x = exprs_[TSR_DIM_EXPR_ID(a)];
  const tsr_dim_expr& y = exprs_[TSR_DIM_EXPR_ID(b)];
  const bool xs = x.op == TSR_DIM_SYMBOL, ys = y.op == TSR_DIM_SYMBOL;
  if (xs != ys) return xs;
  if (xs) return x.symbol < y.symbol;
  // By text, not by handle: the order must not depend on what was interned first, or printing would not round-trip.
  return print(a) < print(b);
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
  switch (e.op) {
    case TSR_DIM_ADD:
    case TSR_DIM_SUB:
      p = polynomial(e.lhs);
      for (const auto& [m, c] : polynomial(e.rhs)) accumulate(p, m, c, e.op == TSR_DIM_SUB);
      return p;
    case TSR_DIM_MUL: return times(polynomial(e.lhs), polynomial(e.rhs));
    default: p[{d}] = 1; return p;
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
  for (const auto& [m, c] : p) {
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
        if (!whole.empty()) return make(TSR_DIM_ADD, build(whole), intern(TSR_DIM_FLOORDIV, 0, build(rest), b));
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
    case TSR_DIM_MAX: {
      if (numbers) return op == TSR_DIM_MIN ? std::min(a, b) : std::max(a, b);
      if (compare(TSR_LE, a, b) == TSR_TRUE) return op == TSR_DIM_MIN ? a : b;
      if (compare(TSR_GE, a, b) == TSR_TRUE) return op == TSR_DIM_MIN ? b : a;
      // Commutative: numbers last, expressions in canonical order.
      if (!TSR_DIM_IS_EXPR(a) || (TSR_DIM_IS_EXPR(b) && print(b) < print(a))) std::swap(a, b);
      return intern(op, 0, a, b);
    }
    case TSR_DIM_SYMBOL: break;
  }
  throw bug("TSR-B004", "unknown size operation " + std::to_string(static_cast<int>(op)));
}

tsr_dim Sizes::product(std::span<const tsr_dim> dims) {
  tsr_dim p = 1;
  for (tsr_dim d : dims) p = mul(p, d);
  return p;
}

// ------------------------------------------------------------------------------------------------ ranges, comparison

Range Sizes::range_of(const Polynomial& p) const {
  Range total{0, 0};
  for (const auto& [m, c] : p) {
    Range r{c, c};
    for (tsr_dim atom : m) r = mul_range(r, range(atom));
    total = add_range(total, r);
  }
  return total;
}

Range Sizes::range(tsr_dim d) const {
  if (!TSR_DIM_IS_EXPR(d)) return {d, d};
  const tsr_dim_expr e = exprs_[TSR_DIM_EXPR_ID(d)];
  if (e.op == TSR_DIM_SYMBOL) return {symbols_[e.symbol].min, symbols_[e.symbol].max};
  const Range a = range(e.lhs), b = range(e.rhs);
  switch (e.op) {
    case TSR_DIM_ADD: return add_range(a, b);
    case TSR_DIM_SUB: return add_range(a, mul_range(b, {-1, -1}));
    case TSR_DIM_MUL: return mul_range(a, b);
    case TSR_DIM_MIN: return {std::min(a.min, b.min), std::min(a.max, b.max)};
    case TSR_DIM_MAX: return {std::max(a.min, b.min), std::max(a.max, b.max)};
    case TSR_DIM_MOD:
      if (b.min <= 0) return {kMin, kMax};
      return {0, std::min(infinite(b.max) ? kMax : b.max - 1, a.min >= 0 ? a.max : kMax)};
    case TSR_DIM_FLOORDIV: {
      if (b.min <= 0) return {kMin, kMax};
      auto div = [](int64_t x, int64_t y) { return infinite(x) ? x : infinite(y) ? (x < 0 ? -1 : 0) : floor_div(x, y); };
      const int64_t ends[] = {div(a.min, b.min), div(a.min, b.max), div(a.max, b.min), div(a.max, b.max)};
      return {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
    }
    default: return {kMin, kMax};
  }
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
    for (const Assumption& s : assumptions_) {
      if (s.relation != TSR_DIVISIBLE) continue;
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

std::string Sizes::terms_key(const Polynomial& p) const {
  std::string key;
  uint64_t sign = 0;
  auto append = [&](uint64_t v) { key.append(reinterpret_cast<const char*>(&v), sizeof v); };
  for (const auto& [m, c] : p) {
    if (m.empty()) continue;
    if (sign == 0) sign = c < 0 ? ~uint64_t{0} : 1;
    append(m.size());
    for (const tsr_dim atom : m) append(static_cast<uint64_t>(atom));
    append(sign * static_cast<uint64_t>(c));
  }
  return key;
}

std::string Sizes::terms_key(const Assumption& s) const {
  if (s.relation == TSR_DIVISIBLE) return {};
  try {
    return terms_key(difference(s.a, s.b));
  } catch (const Error&) {  // it overflows, and so would every comparison with it
    return {};
  }
}

tsr_truth Sizes::decide(tsr_relation r, tsr_dim a, tsr_dim b) const {
  if (!TSR_DIM_IS_EXPR(a) && !TSR_DIM_IS_EXPR(b)) return holds(r, a, b) ? TSR_TRUE : TSR_FALSE;
  if (r == TSR_DIVISIBLE) return divisible(polynomial(a), b);
  if (a == b) return holds(r, 0, 0) ? TSR_TRUE : TSR_FALSE;

  Polynomial d = difference(a, b);
  Range range = range_of(d);
  bool nonzero = false;
  // An assumption p REL 0 bounds d when d == c + p or d == c - p.
  const auto found = use_assumptions_ ? by_terms_.find(terms_key(d)) : by_terms_.end();
  const std::vector<uint32_t> none;
  for (const uint32_t index : found == by_terms_.end() ? none : found->second) {
    const Assumption& s = assumptions_[index];
    const Polynomial p = difference(s.a, s.b);
    for (const int64_t sign : {int64_t{1}, int64_t{-1}}) {
      Polynomial rest = d;
      for (const auto& [m, c] : p) accumulate(rest, m, c, sign > 0);
      if (rest.size() > 1 || (rest.size() == 1 && !rest.begin()->first.empty())) continue;
      const int64_t c = rest.empty() ? 0 : rest.begin()->second;
      Range q{kMin, kMax};  // of p
      switch (s.relation) {
        case TSR_EQ: q = {0, 0}; break;
        case TSR_LT: q.max = -1; break;
        case TSR_LE: q.max = 0; break;
        case TSR_GT: q.min = 1; break;
        case TSR_GE: q.min = 0; break;
        case TSR_NE:
          if (c == 0) nonzero = true;
          break;
        case TSR_DIVISIBLE: break;
      }
      const Range bound = add_range({c, c}, mul_range(q, {sign, sign}));
      range.min = std::max(range.min, bound.min);
      range.max = std::min(range.max, bound.max);
    }
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
      if (std::string key = terms_key(assumptions_.back()); !key.empty())
        by_terms_[std::move(key)].push_back(static_cast<uint32_t>(assumptions_.size() - 1));
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

int64_t Sizes::evaluate(tsr_dim d, std::span<const int64_t> values) const {
  if (!TSR_DIM_IS_EXPR(d)) return d;
  const tsr_dim_expr& e = exprs_[TSR_DIM_EXPR_ID(d)];
  if (e.op == TSR_DIM_SYMBOL) return values[e.symbol];
  const int64_t a = evaluate(e.lhs, values), b = evaluate(e.rhs, values);
  switch (e.op) {
    case TSR_DIM_ADD: return checked_add(a, b);
    case TSR_DIM_SUB: return checked_sub(a, b);
    case TSR_DIM_MUL: return checked_mul(a, b);
    case TSR_DIM_FLOORDIV: return floor_div(a, b);
    case TSR_DIM_MOD: return floor_mod(a, b);
    case TSR_DIM_MIN: return std::min(a, b);
    default: return std::max(a, b);
  }
}

Sizes::Solution Sizes::solve(tsr_dim d, uint32_t symbol, int64_t value, std::span<const int64_t> values,
                             int64_t* solution) const {
  const auto mentions = [&](tsr_dim x) {
    std::vector<uint32_t> symbols;
    collect_symbols(x, symbols);
    return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
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
  if (!TSR_DIM_IS_EXPR(d)) return;
  const tsr_dim_expr& e = exprs_[TSR_DIM_EXPR_ID(d)];
  if (e.op == TSR_DIM_SYMBOL) {
    if (std::find(out.begin(), out.end(), e.symbol) == out.end()) out.push_back(e.symbol);
    return;
  }
  collect_symbols(e.lhs, out);
  collect_symbols(e.rhs, out);
}

bool Sizes::is_unbacked(tsr_dim d) const {
  std::vector<uint32_t> used;
  collect_symbols(d, used);
  return std::any_of(used.begin(), used.end(), [&](uint32_t s) { return symbols_[s].unbacked != 0; });
}

// --------------------------------------------------------------------------------------------------- text, import

namespace {
// Precedence: sum 1, product 2, atom 3.
template <class Name>
std::string print_at(const std::vector<tsr_dim_expr>& exprs, const Name& name, tsr_dim d, int level) {
  if (!TSR_DIM_IS_EXPR(d)) return std::to_string(d);
  const tsr_dim_expr& e = exprs[TSR_DIM_EXPR_ID(d)];
  auto sub = [&](tsr_dim x, int l) { return print_at(exprs, name, x, l); };
  std::string s;
  switch (e.op) {
    case TSR_DIM_SYMBOL: return name(e.symbol);
    case TSR_DIM_ADD:
    case TSR_DIM_SUB: {
      s = sub(e.lhs, 1);
      // a + b * -2 reads better as a - b * 2.
      if (!TSR_DIM_IS_EXPR(e.rhs) && e.rhs < 0 && e.op == TSR_DIM_ADD) {
        s += " - " + std::to_string(-e.rhs);
      } else if (TSR_DIM_IS_EXPR(e.rhs) && e.op == TSR_DIM_ADD && exprs[TSR_DIM_EXPR_ID(e.rhs)].op == TSR_DIM_MUL &&
                 !TSR_DIM_IS_EXPR(exprs[TSR_DIM_EXPR_ID(e.rhs)].rhs) && exprs[TSR_DIM_EXPR_ID(e.rhs)].rhs < 0) {
        const tsr_dim_expr& m = exprs[TSR_DIM_EXPR_ID(e.rhs)];
        s += " - " + sub(m.lhs, 2) + (m.rhs == -1 ? "" : " * " + std::to_string(-m.rhs));
      } else {
        s += (e.op == TSR_DIM_ADD ? " + " : " - ") + sub(e.rhs, 2);
      }
      return level > 1 ? "(" + s + ")" : s;
    }
    case TSR_DIM_MUL: s = sub(e.lhs, 2) + " * " + sub(e.rhs, 3); return level > 2 ? "(" + s + ")" : s;
    default: {
      static const char* const kName[] = {"", "", "", "", "floordiv", "mod", "min", "max"};
      return std::string(kName[e.op]) + "(" + sub(e.lhs, 1) + ", " + sub(e.rhs, 1) + ")";
    }
  }
}
}  // namespace

std::string Sizes::print(tsr_dim d) const {
  return print_at(
      exprs_, [this](uint32_t s) { return std::string(symbols_[s].name); }, d, 1);
}

std::string Sizes::print(tsr_dim d, std::span<const std::string> names) const {
  return print_at(
      exprs_, [names](uint32_t s) { return names[s]; }, d, 1);
}

tsr_dim Sizes::import(const Sizes& other, tsr_dim d, const std::function<tsr_dim(uint32_t)>& map) {
  if (!TSR_DIM_IS_EXPR(d)) return d;
  const tsr_dim_expr e = other.exprs_[TSR_DIM_EXPR_ID(d)];
  if (e.op == TSR_DIM_SYMBOL) return map(e.symbol);
  const tsr_dim a = import(other, e.lhs, map), b = import(other, e.rhs, map);
  return make(static_cast<tsr_dim_op>(e.op), a, b);
}

}  // namespace tessera::core
