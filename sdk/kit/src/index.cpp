// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/index.hpp"

#include <algorithm>
#include <numeric>

#include "tessera/plugin.hpp"

namespace tessera::kit {
namespace {

[[noreturn]] void overflow() {
  throw sdk::Error(TSR_USER, "TSR-K021", "an index expression has a coefficient beyond 64 bits", "use smaller sizes");
}
int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) overflow();
  return r;
}
int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) overflow();
  return r;
}
int64_t floor_div(int64_t a, int64_t b) {
  const int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
// Bits of a number spread over all of them (the finaliser of MurmurHash3).
inline uint64_t mixed(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}
// Removes the atoms of `b` from those of `a`; nullopt when one is missing.
std::optional<std::vector<uint32_t>> without(std::vector<uint32_t> a, const std::vector<uint32_t>& b) {
  for (const uint32_t x : b) {
    const auto at = std::find(a.begin(), a.end(), x);
    if (at == a.end()) return std::nullopt;
    a.erase(at);
  }
  return a;
}

}  // namespace

IndexPool::IndexPool() {
  intern({});         // kZero
  intern({{1, {}}});  // kOne
}

uint32_t& IndexPool::Table::at(uint64_t key) {
  if (4 * (used_ + 1) > 3 * slots_.size()) {
    std::vector<std::pair<uint64_t, uint32_t>> before(std::max<size_t>(64, 2 * slots_.size()), {0, kNothing});
    before.swap(slots_);
    used_ = 0;
    for (const auto& [k, v] : before)
      if (k != 0) at(k) = v;
  }
  size_t i = mixed(key) & (slots_.size() - 1);
  while (slots_[i].first != 0 && slots_[i].first != key) i = (i + 1) & (slots_.size() - 1);
  if (slots_[i].first == 0) slots_[i].first = key, ++used_;
  return slots_[i].second;
}

Expr IndexPool::intern(std::vector<Term> terms) {
  if (terms.size() > 1) {
    std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.atoms < y.atoms; });
    size_t last = 0;
    for (size_t i = 1; i < terms.size(); ++i) {
      if (terms[last].atoms == terms[i].atoms)
        terms[last].coefficient = checked_add(terms[last].coefficient, terms[i].coefficient);
      else if (++last != i)
        terms[last] = std::move(terms[i]);
    }
    terms.resize(last + 1);
  }
  std::erase_if(terms, [](const Term& t) { return t.coefficient == 0; });
  uint64_t hash = terms.size();
  for (const Term& t : terms) {
    hash = mixed(hash ^ static_cast<uint64_t>(t.coefficient));
    for (const uint32_t a : t.atoms) hash = mixed(hash + a + 1);
  }
  if (4 * (polys_.size() + 1) > 3 * interned_.size()) {
    std::vector<std::pair<uint64_t, Expr>> before(std::max<size_t>(64, 2 * interned_.size()), {0, Table::kNothing});
    before.swap(interned_);
    for (const auto& [h, e] : before) {
      if (e == Table::kNothing) continue;
      size_t i = h & (interned_.size() - 1);
      while (interned_[i].second != Table::kNothing) i = (i + 1) & (interned_.size() - 1);
      interned_[i] = {h, e};
    }
  }
  size_t i = hash & (interned_.size() - 1);
  for (; interned_[i].second != Table::kNothing; i = (i + 1) & (interned_.size() - 1))
    if (interned_[i].first == hash && polys_[interned_[i].second] == terms) return interned_[i].second;
  interned_[i] = {hash, static_cast<Expr>(polys_.size())};
  polys_.push_back(std::move(terms));
  return interned_[i].second;
}

uint32_t IndexPool::atom_id(const Atom& a) {
  const auto [at, fresh] = atom_ids_.try_emplace(a, static_cast<uint32_t>(atoms_.size()));
  if (fresh) atoms_.push_back(a);
  return at->second;
}
Expr IndexPool::atom(const Atom& a) { return intern({{1, {atom_id(a)}}}); }

Expr IndexPool::number(int64_t n) { return n == 0 ? kZero : intern({{n, {}}}); }

uint32_t IndexPool::add_axis(Expr extent) {
  extents_.push_back(extent);
  return static_cast<uint32_t>(extents_.size() - 1);
}
uint32_t IndexPool::add_symbol(int64_t min) {
  minima_.push_back(std::max<int64_t>(0, min));
  return static_cast<uint32_t>(minima_.size() - 1);
}

Expr IndexPool::add(Expr a, Expr b) {
  if (a == kZero) return b;
  if (b == kZero) return a;
  if (a > b) std::swap(a, b);
  uint32_t& known = answer(Question::Add, a, b);
  if (known != Table::kNothing) return known;
  std::vector<Term> t = polys_[a];
  t.insert(t.end(), polys_[b].begin(), polys_[b].end());
  return known = intern(std::move(t));
}
Expr IndexPool::sub(Expr a, Expr b) {
  if (b == kZero) return a;
  if (a == b) return kZero;
  uint32_t& known = answer(Question::Sub, a, b);
  if (known != Table::kNothing) return known;
  std::vector<Term> t = polys_[a];
  for (Term x : polys_[b]) {
    x.coefficient = checked_mul(x.coefficient, -1);
    t.push_back(std::move(x));
  }
  return known = intern(std::move(t));
}
Expr IndexPool::mul(Expr a, Expr b) {
  if (a == kOne) return b;
  if (b == kOne) return a;
  if (a == kZero || b == kZero) return kZero;
  if (a > b) std::swap(a, b);
  uint32_t& known = answer(Question::Mul, a, b);
  if (known != Table::kNothing) return known;
  std::vector<Term> t;
  for (const Term& x : polys_[a])
    for (const Term& y : polys_[b]) {
      Term z{checked_mul(x.coefficient, y.coefficient), x.atoms};
      z.atoms.insert(z.atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(z.atoms.begin(), z.atoms.end());
      t.push_back(std::move(z));
    }
  return known = intern(std::move(t));
}
Expr IndexPool::product(std::span<const Expr> factors) {
  Expr p = kOne;
  for (const Expr f : factors) p = mul(p, f);
  return p;
}

std::optional<int64_t> IndexPool::as_number(Expr e) const {
  const auto& t = polys_[e];
  if (t.empty()) return 0;
  if (t.size() == 1 && t[0].atoms.empty()) return t[0].coefficient;
  return std::nullopt;
}
std::optional<uint32_t> IndexPool::as_axis(Expr e) const {
  const auto& t = polys_[e];
  if (t.size() != 1 || t[0].coefficient != 1 || t[0].atoms.size() != 1) return std::nullopt;
  const Atom& a = atoms_[t[0].atoms[0]];
  return a.kind == AtomKind::Axis ? std::optional(a.id) : std::nullopt;
}

// The extent of an axis without points divides what nobody computes: 0, as where an index is evaluated.
Expr IndexPool::floordiv(Expr a, Expr b) {
  if (b == kZero) return kZero;
  if (b == kOne || a == kZero) return a;
  if (const uint32_t known = answer(Question::FloorDiv, a, b); known != Table::kNothing) return known;
  const Expr out = quotient(a, b);
  return answer(Question::FloorDiv, a, b) = out;
}
Expr IndexPool::quotient(Expr a, Expr b) {
  const auto na = as_number(a), nb = as_number(b);
  if (na && nb) return number(floor_div(*na, *nb));
  if (a == b) return kOne;
  Expr whole = kZero, rest = a;
  if (const std::vector<Term> d = polys_[b]; d.size() == 1 && d[0].coefficient > 0) {
    std::vector<Term> q, r;
    for (const Term& t : polys_[a]) {
      const auto atoms = without(t.atoms, d[0].atoms);
      if (!atoms) {
        r.push_back(t);
        continue;
      }
      const int64_t times = floor_div(t.coefficient, d[0].coefficient), left = t.coefficient - times * d[0].coefficient;
      if (times != 0) q.push_back({times, *atoms});
      if (left != 0) r.push_back({left, t.atoms});
    }
    whole = intern(std::move(q));
    rest = intern(std::move(r));
    if (nonnegative(rest) && less(rest, b)) return whole;
    // A factor that every remaining term shares with the divisor cancels.
    int64_t g = d[0].coefficient;
    for (const Term& t : polys_[rest]) g = std::gcd(g, t.coefficient);
    if (g > 1) {
      const Expr by = number(g);
      return add(whole, floordiv(*divide_exactly(rest, by), *divide_exactly(b, by)));
    }
  } else if (nonnegative(a) && less(a, b)) {
    return kZero;
  }
  if (const auto parts = split_below(rest, b)) return add(whole, floordiv(parts->first, b));
  return add(whole, atom({AtomKind::FloorDiv, 0, rest, b}));
}

// e as a sum of multiples of a number that divides b, and a rest that is less than this number: no quotient by b sees it.
std::optional<std::pair<Expr, Expr>> IndexPool::split_below(Expr e, Expr b) {
  const auto n = as_number(b);
  if (!n) return std::nullopt;
  const std::vector<Term> terms = polys_[e];
  for (const Term& t : terms) {
    const int64_t unit = std::gcd(t.coefficient, *n);
    if (unit <= 1) continue;
    std::vector<Term> multiples, others;
    for (const Term& x : terms) (x.coefficient % unit == 0 ? multiples : others).push_back(x);
    if (others.empty()) continue;
    const Expr rest = intern(std::move(others));
    if (nonnegative(rest) && less(rest, number(unit))) return std::pair{intern(std::move(multiples)), rest};
  }
  return std::nullopt;
}

Expr IndexPool::mod(Expr a, Expr b) {
  if (b == kZero || b == kOne || a == kZero || a == b) return kZero;
  if (const uint32_t known = answer(Question::Mod, a, b); known != Table::kNothing) return known;
  const Expr out = remainder(a, b);
  return answer(Question::Mod, a, b) = out;
}
Expr IndexPool::remainder(Expr a, Expr b) {
  const auto na = as_number(a), nb = as_number(b);
  if (na && nb) return number(*na - floor_div(*na, *nb) * *nb);
  Expr rest = a;
  if (const std::vector<Term> d = polys_[b]; d.size() == 1 && d[0].coefficient > 0) {
    std::vector<Term> r;
    for (const Term& t : polys_[a]) {
      int64_t left = t.coefficient;
      if (without(t.atoms, d[0].atoms)) left -= floor_div(left, d[0].coefficient) * d[0].coefficient;
      if (left != 0) r.push_back({left, t.atoms});
    }
    rest = intern(std::move(r));
  }
  if (nonnegative(rest) && less(rest, b)) return rest;
  if (const auto parts = split_below(rest, b)) return add(mod(parts->first, b), parts->second);
  return atom({AtomKind::Mod, 0, rest, b});
}

Expr IndexPool::min(Expr a, Expr b) {
  if (a == b) return a;
  if (nonnegative(sub(b, a))) return a;
  if (nonnegative(sub(a, b))) return b;
  return atom({AtomKind::Min, 0, std::min(a, b), std::max(a, b)});
}
Expr IndexPool::max(Expr a, Expr b) {
  if (a == b) return a;
  if (nonnegative(sub(a, b))) return a;
  if (nonnegative(sub(b, a))) return b;
  return atom({AtomKind::Max, 0, std::min(a, b), std::max(a, b)});
}

std::optional<Expr> IndexPool::divide_exactly(Expr a, Expr b) {
  if (b == kOne || a == kZero) return a;
  if (a == b) return kOne;
  const std::vector<Term> d = polys_[b];
  if (d.size() != 1 || d[0].coefficient == 0) return std::nullopt;
  std::vector<Term> q;
  for (const Term& t : polys_[a]) {
    const auto atoms = without(t.atoms, d[0].atoms);
    if (!atoms || t.coefficient % d[0].coefficient != 0) return std::nullopt;
    q.push_back({t.coefficient / d[0].coefficient, *atoms});
  }
  return intern(std::move(q));
}

std::optional<Expr> IndexPool::atom_bound(const Atom& a, bool upper) {
  switch (a.kind) {
    case AtomKind::Axis: return upper ? sub(extents_[a.id], kOne) : kZero;
    case AtomKind::Symbol: return atom(a);
    case AtomKind::Value: return std::nullopt;
    case AtomKind::Mod: {
      if (!upper) return kZero;
      int64_t step = as_number(a.b).value_or(1);  // that all values are multiples of
      for (const Term& x : terms(a.a)) step = std::gcd(step, x.coefficient);
      return sub(a.b, number(step));
    }
    case AtomKind::FloorDiv: {
      const auto x = bound(a.a, upper);
      if (!x) return std::nullopt;
      if (!upper) return nonnegative(*x) ? std::optional(kZero) : std::nullopt;
      const Expr q = floordiv(*x, a.b);
      return q == atom(a) ? std::nullopt : std::optional(q);
    }
    case AtomKind::Min: {
      if (!upper) return nonnegative(a.a) && nonnegative(a.b) ? std::optional(kZero) : std::nullopt;
      return bound(a.a, true);
    }
    case AtomKind::Max: return upper ? std::nullopt : bound(a.a, false);
  }
  return std::nullopt;
}

// An expression over symbols alone that e never exceeds (or never falls below).
std::optional<Expr> IndexPool::bound(Expr e, bool upper) {
  constexpr uint32_t kUnbounded = Table::kNothing - 1;
  const Question end = upper ? Question::High : Question::Low;
  uint32_t known = answer(end, e);
  if (known == Table::kNothing) {
    const auto found = find_bound(e, upper);
    known = answer(end, e) = found.value_or(kUnbounded);
  }
  return known == kUnbounded ? std::nullopt : std::optional(known);
}
std::optional<Expr> IndexPool::find_bound(Expr e, bool upper) {
  Expr out = kZero;
  for (const Term& t : std::vector<Term>(polys_[e])) {
    Expr p = number(t.coefficient);
    for (const uint32_t id : t.atoms) {
      const Atom a = atoms_[id];
      // Every atom is nonnegative, or has no bound here; so the sign of the coefficient decides.
      const auto low = atom_bound(a, false);
      if (!low || (a.kind != AtomKind::Symbol && a.kind != AtomKind::Axis && !nonnegative(*low))) return std::nullopt;
      const auto b = atom_bound(a, (t.coefficient > 0) == upper);
      if (!b) return std::nullopt;
      p = mul(p, *b);
    }
    out = add(out, p);
  }
  return out;
}

bool IndexPool::nonnegative(Expr e) {
  uint32_t known = answer(Question::Nonnegative, e);
  if (known == Table::kNothing) {
    const bool found = is_nonnegative(e);
    known = answer(Question::Nonnegative, e) = found;
  }
  return known != 0;
}
bool IndexPool::is_nonnegative(Expr e) {
  bool plain = true;
  for (const Term& t : polys_[e]) plain = plain && t.coefficient > 0 && t.atoms.empty();
  if (plain) return true;
  const auto low = bound(e, false);
  if (!low) return false;
  // Over symbols alone: shift each to its minimum; then no negative coefficient may be left.
  const Expr shifted = substitute(*low, [&](const Atom& a) -> std::optional<Expr> {
    if (a.kind != AtomKind::Symbol || minima_[a.id] == 0) return std::nullopt;
    return add(atom(a), number(minima_[a.id]));
  });
  for (const Term& t : polys_[shifted])
    if (t.coefficient < 0) return false;
  return true;
}

bool IndexPool::uses(Expr e, AtomKind kind, uint32_t id) const {
  for (const Term& t : polys_[e])
    for (const uint32_t x : t.atoms) {
      const Atom& a = atoms_[x];
      if (a.kind == kind && a.id == id && a.kind <= AtomKind::Value) return true;
      if (a.kind > AtomKind::Value && (uses(a.a, kind, id) || uses(a.b, kind, id))) return true;
    }
  return false;
}

void IndexPool::collect(Expr e, AtomKind kind, std::vector<uint32_t>& ids) const {
  for (const Term& t : polys_[e])
    for (const uint32_t x : t.atoms) {
      const Atom& a = atoms_[x];
      if (a.kind == kind) {
        if (std::find(ids.begin(), ids.end(), a.id) == ids.end()) ids.push_back(a.id);
      } else if (a.kind > AtomKind::Value) {
        collect(a.a, kind, ids);
        collect(a.b, kind, ids);
      }
    }
}

std::optional<IndexPool::Affine> IndexPool::affine(Expr e, uint32_t axis) {
  std::vector<Term> coefficient, rest;
  for (const Term& t : polys_[e]) {
    size_t times = 0;
    std::vector<uint32_t> others;
    for (const uint32_t x : t.atoms) {
      const Atom& a = atoms_[x];
      if (a.kind == AtomKind::Axis && a.id == axis) {
        ++times;
        continue;
      }
      if (a.kind > AtomKind::Value && (uses(a.a, AtomKind::Axis, axis) || uses(a.b, AtomKind::Axis, axis))) return std::nullopt;
      others.push_back(x);
    }
    if (times > 1) return std::nullopt;
    (times == 1 ? coefficient : rest).push_back({t.coefficient, std::move(others)});
  }
  return Affine{intern(std::move(coefficient)), intern(std::move(rest))};
}

Expr IndexPool::substitute(Expr e, const std::function<std::optional<Expr>(const Atom&)>& with) {
  Expr out = kZero;
  for (const Term& t : std::vector<Term>(polys_[e])) {
    Expr p = number(t.coefficient);
    for (const uint32_t id : t.atoms) {
      const Atom a = atoms_[id];
      Expr x;
      switch (a.kind) {
        case AtomKind::FloorDiv: x = floordiv(substitute(a.a, with), substitute(a.b, with)); break;
        case AtomKind::Mod: x = mod(substitute(a.a, with), substitute(a.b, with)); break;
        case AtomKind::Min: x = min(substitute(a.a, with), substitute(a.b, with)); break;
        case AtomKind::Max: x = max(substitute(a.a, with), substitute(a.b, with)); break;
        default: x = with(a).value_or(atom(a));
      }
      p = mul(p, x);
    }
    out = add(out, p);
  }
  return out;
}

int64_t IndexPool::evaluate(Expr e, const IndexEnv& env) const {
  int64_t sum = 0;
  for (const Term& t : polys_[e]) {
    int64_t p = t.coefficient;
    for (const uint32_t id : t.atoms) {
      const Atom& a = atoms_[id];
      int64_t x = 0;
      switch (a.kind) {
        case AtomKind::Axis: x = env.axes[a.id]; break;
        case AtomKind::Symbol: x = env.symbols[a.id]; break;
        case AtomKind::Value: x = (*env.value)(a.id); break;
        default: {
          const int64_t l = evaluate(a.a, env), r = evaluate(a.b, env);
          if (a.kind == AtomKind::FloorDiv) x = r == 0 ? 0 : floor_div(l, r);
          if (a.kind == AtomKind::Mod) x = r == 0 ? 0 : l - floor_div(l, r) * r;
          if (a.kind == AtomKind::Min) x = std::min(l, r);
          if (a.kind == AtomKind::Max) x = std::max(l, r);
        }
      }
      p = checked_mul(p, x);
    }
    sum = checked_add(sum, p);
  }
  return sum;
}

Expr IndexPool::linear(std::span<const Expr> position, std::span<const Expr> shape) {
  Expr at = kZero;
  for (size_t i = 0; i < shape.size(); ++i) at = add(mul(at, shape[i]), position[i]);
  return at;
}
std::vector<Expr> IndexPool::position(Expr linear, std::span<const Expr> shape) {
  std::vector<Expr> out(shape.size(), kZero);
  Expr stride = kOne;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != kOne) {
      // The leading dimension needs no mod: a number of the tensor is below its element count.
      bool leading = true;
      for (size_t k = 0; k < i; ++k) leading = leading && shape[k] == kOne;
      const Expr q = floordiv(linear, stride);
      out[i] = leading ? q : mod(q, shape[i]);
    }
    stride = mul(stride, shape[i]);
  }
  return out;
}

std::string IndexPool::text(Expr e, const std::function<std::string(const Atom&)>& name,
                            const std::function<std::string(const char*)>& call) const {
  const auto& terms = polys_[e];
  if (terms.empty()) return "0";
  const auto function = [&](const char* f) { return call ? call(f) : std::string(f); };
  std::string out;
  // Numbers last: "1024 * p0 + r0 + 3".
  std::vector<const Term*> order;
  for (const Term& t : terms) order.push_back(&t);
  std::stable_sort(order.begin(), order.end(), [](const Term* x, const Term* y) { return x->atoms.size() > y->atoms.size(); });
  for (const Term* t : order) {
    int64_t c = t->coefficient;
    if (!out.empty()) {
      out += c < 0 ? " - " : " + ";
      if (c < 0) c = c == INT64_MIN ? c : -c;
    }
    std::string p;
    if (t->atoms.empty() || c != 1) p = std::to_string(c);
    for (const uint32_t id : t->atoms) {
      const Atom& a = atoms_[id];
      if (!p.empty()) p += " * ";
      switch (a.kind) {
        case AtomKind::Axis:
        case AtomKind::Symbol:
        case AtomKind::Value: p += name(a); break;
        case AtomKind::FloorDiv:
          p += function("floordiv") + "(" + text(a.a, name, call) + ", " + text(a.b, name, call) + ")";
          break;
        case AtomKind::Mod: p += function("mod") + "(" + text(a.a, name, call) + ", " + text(a.b, name, call) + ")"; break;
        case AtomKind::Min: p += function("min") + "(" + text(a.a, name, call) + ", " + text(a.b, name, call) + ")"; break;
        case AtomKind::Max: p += function("max") + "(" + text(a.a, name, call) + ", " + text(a.b, name, call) + ")"; break;
      }
    }
    out += p;
  }
  return out;
}

}  // namespace tessera::kit
