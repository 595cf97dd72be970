// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/ranges.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::kit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kExact = 0x1p53;  // integers up to here are doubles

Range of_type(Type t) {
  switch (t) {
    case Type::Bool: return {0, 1, false};
    case Type::I8: return {-128, 127, false};
    case Type::U8: return {0, 255, false};
    case Type::I16: return {-32768, 32767, false};
    case Type::U16: return {0, 65535, false};
    case Type::I32: return {-0x1p31, 0x1p31 - 1, false};
    case Type::U32: return {0, 0x1p32 - 1, false};
    case Type::I64:
    case Type::U64: return {-kInf, kInf, false};
    default: return {};
  }
}

// An integer that leaves its type wraps, and can be any value of it then.
Range kept(Type t, const Range& r) {
  const Range all = of_type(t);
  if (is_float(t)) return r;
  const bool fits = r.lo >= std::max(all.lo, -kExact) && r.hi <= std::min(all.hi, kExact);
  return fits ? Range{r.lo, r.hi, false} : all;
}

// Numbers of a float type are rounded once, which keeps their order: ends are moved outwards by more than a rounding.
Range rounded(Type t, double lo, double hi, bool nan) {
  if (!is_float(t)) return kept(t, {lo, hi, false});
  if (t != Type::F32 && t != Type::F64) return {};
  const auto down = [&](double x) {
    return t == Type::F64 ? std::nextafter(x, -kInf) : static_cast<double>(std::nextafterf(static_cast<float>(x), -INFINITY));
  };
  const auto up = [&](double x) {
    return t == Type::F64 ? std::nextafter(x, kInf) : static_cast<double>(std::nextafterf(static_cast<float>(x), INFINITY));
  };
  return {down(lo), up(hi), nan};
}

bool finite(const Range& r) { return std::isfinite(r.lo) && std::isfinite(r.hi); }

// The range of what f gives at the ends, for an f that is monotone in each operand. NaN: where an operand is, and where ends
// are infinite.
template <class F>
Range of_ends(Type t, const Range& a, const Range& b, F&& f) {
  if (!finite(a) || !finite(b)) return is_float(t) ? Range{} : of_type(t);
  const double ends[] = {f(a.lo, b.lo), f(a.lo, b.hi), f(a.hi, b.lo), f(a.hi, b.hi)};
  return rounded(t, *std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4), a.nan || b.nan);
}

Range of_select(const Inst& x, std::span<const Inst> insts, std::span<const Range> of) {
  const Inst& c = insts[x.args[0]];
  Range a = of[x.args[1]], b = of[x.args[2]];
  if (is_compare(c.op) && c.op != Op::Eq && c.op != Op::Ne) {
    // Which side of the comparison each alternative is: it lies on that side of the other's end where it is chosen.
    const bool less = c.op == Op::Lt || c.op == Op::Le;
    const uint32_t small = c.args[less ? 0 : 1], large = c.args[less ? 1 : 0];
    const auto where = [&](uint32_t v, Range r, bool holds) {
      const Range &s = of[small], &l = of[large];
      // An order that does not hold says something only where no operand can be NaN, or of the value that is not.
      if (holds) {
        if (v == small) r.hi = std::min(r.hi, l.hi), r.nan = false;
        if (v == large) r.lo = std::max(r.lo, s.lo), r.nan = false;
      } else {
        if (v == small && !l.nan) r.lo = std::max(r.lo, l.lo);
        if (v == large && !s.nan) r.hi = std::min(r.hi, s.hi);
      }
      return r;
    };
    a = where(x.args[1], a, true), b = where(x.args[2], b, false);
  }
  if (c.op == Op::Ne && c.args[0] == c.args[1]) {  // is NaN
    if (x.args[1] == c.args[0]) return {b.lo, b.hi, true};
    if (x.args[2] == c.args[0]) b.nan = false;
  }
  if (a.lo > a.hi) return b;  // never chosen
  if (b.lo > b.hi) return {a.lo, a.hi, a.nan || b.nan};
  return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), a.nan || b.nan};
}

Range of_convert(Type from, Type to, const Range& a) {
  if (is_float(to)) {
    if (is_float(from) && type_bytes(to) > type_bytes(from)) return a;
    if (to == Type::F32 || to == Type::F64)
      return finite(a) ? rounded(to, a.lo, a.hi, a.nan) : Range{-kInf, kInf, is_float(from)};
    return {};
  }
  if (to == Type::Bool) return of_type(to);
  if (!finite(a) || a.nan) return of_type(to);
  return kept(to, is_float(from) ? Range{std::trunc(a.lo), std::trunc(a.hi), false} : a);
}

}  // namespace

Range range_of(const Inst& x, std::span<const Inst> insts, std::span<const Range> of) {
  const auto at = [&](int i) { return of[x.args[static_cast<size_t>(i)]]; };
  switch (x.op) {
    case Op::Const:
      if (is_float(x.type)) {
        const double v = constant_float(x.type, x.bits);
        return std::isnan(v) ? Range{} : Range{v, v, false};
      } else {
        const int unused = x.type == Type::Bool ? 0 : 64 - type_bytes(x.type) * 8;
        const double v = is_signed(x.type) ? static_cast<double>(static_cast<int64_t>(x.bits << unused) >> unused)
                                           : static_cast<double>(x.bits);
        return kept(x.type, {v, v, false});
      }
    case Op::Convert: return of_convert(insts[x.args[0]].type, x.type, at(0));
    case Op::Select: return of_select(x, insts, of);
    case Op::Add: return of_ends(x.type, at(0), at(1), [](double a, double b) { return a + b; });
    case Op::Sub: return of_ends(x.type, at(0), at(1), [](double a, double b) { return a - b; });
    case Op::Mul: return of_ends(x.type, at(0), at(1), [](double a, double b) { return a * b; });
    case Op::Div:
      if (!is_float(x.type) || (at(1).lo <= 0 && at(1).hi >= 0)) break;
      return of_ends(x.type, at(0), at(1), [](double a, double b) { return a / b; });
    case Op::Neg:
      if (is_float(x.type)) return {-at(0).hi, -at(0).lo, at(0).nan};
      break;
    case Op::Round: return {std::nearbyint(at(0).lo), std::nearbyint(at(0).hi), at(0).nan};
    case Op::Floor: return {std::floor(at(0).lo), std::floor(at(0).hi), at(0).nan};
    case Op::Ceil: return {std::ceil(at(0).lo), std::ceil(at(0).hi), at(0).nan};
    case Op::Trunc: return {std::trunc(at(0).lo), std::trunc(at(0).hi), at(0).nan};
    default: break;
  }
  return of_type(x.type);
}

std::optional<bool> decided(Op compare, const Range& a, const Range& b, bool same) {
  // Every comparison with NaN is false, but Ne.
  const bool nan = a.nan || b.nan;
  const auto with = [&](bool always, bool never) -> std::optional<bool> {
    if (never) return false;
    if (always && !nan) return true;
    return std::nullopt;
  };
  switch (compare) {
    case Op::Eq:
      if (same) return with(true, false);
      return with(a.lo == a.hi && b.lo == b.hi && a.lo == b.lo, a.hi < b.lo || b.hi < a.lo);
    case Op::Ne:
      if (same) return nan ? std::nullopt : std::optional(false);
      if (a.hi < b.lo || b.hi < a.lo) return true;
      return std::nullopt;
    case Op::Lt: return with(a.hi < b.lo, a.lo >= b.hi);
    case Op::Le: return with(a.hi <= b.lo, a.lo > b.hi);
    case Op::Gt: return with(a.lo > b.hi, a.hi <= b.lo);
    case Op::Ge: return with(a.lo >= b.hi, a.hi < b.lo);
    default: return std::nullopt;
  }
}

}  // namespace tessera::kit
