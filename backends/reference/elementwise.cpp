// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison, selection, bits. Functions of one variable that need their own numerics are in special.cpp.
#include "elementwise.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "tessera/dtypes.hpp"

namespace tessera::reference {

namespace {

template <class T>
void map1(const Op& op, T (*f)(T)) {
  const Tensor x = op.in(0), y = op.out();
  for (Walk w(y.sizes()); w; w.next()) y.put<T>(y.offset(w.index()), f(x.get<T>(x.offset(w.index()))));
}
template <class T>
void map2(const Op& op, T (*f)(T, T)) {
  const Tensor y = op.out(), a = op.in(0).broadcast(y.sizes()), b = op.in(1).broadcast(y.sizes());
  for (Walk w(y.sizes()); w; w.next()) {
    const Index& i = w.index();
    y.put<T>(y.offset(i), f(a.get<T>(a.offset(i)), b.get<T>(b.offset(i))));
  }
}

[[noreturn]] void wrong_dtype(const Op& op) {
  throw sdk::Error(TSR_BUG, "TSR-B032", op.name() + ": not defined for dtype " + std::string(dtype_name(op.in(0).dtype())));
}

// ------------------------------------------------------------------------------------------------------ arithmetic

void neg(const Op& op) {
  unary(
      op, [](double x) { return -x; }, [](Int x) -> Int { return -x; }, [](Complex x) { return -x; });
}
void sign(const Op& op) {  // of NaN: 0, as torch.sign
  unary(
      op, [](double x) { return x > 0   ? 1.0
                                : x < 0 ? -1.0
                                        : 0.0; }, [](Int x) -> Int { return (x > 0) - (x < 0); });
}
void abs(const Op& op) {  // the lowest integer wraps to itself
  const Tensor x = op.in(0), y = op.out();
  if (domain(x.dtype()) != Domain::Complex)
    return unary(
        op, [](double v) { return std::fabs(v); }, [](Int v) -> Int { return v < 0 ? -v : v; });
  for (Walk w(y.sizes()); w; w.next()) {
    const Complex z = x.get<Complex>(x.offset(w.index()));
    y.put<double>(y.offset(w.index()), std::hypot(z.real(), z.imag()));
  }
}
void floor(const Op& op) {
  unary(op, [](double x) { return std::floor(x); });
}
void ceil(const Op& op) {
  unary(op, [](double x) { return std::ceil(x); });
}
void round(const Op& op) {
  unary(op, [](double x) { return std::nearbyint(x); });
}
void trunc(const Op& op) {
  unary(op, [](double x) { return std::trunc(x); });
}
void reciprocal(const Op& op) {
  unary(
      op, [](double x) { return 1 / x; }, nullptr, [](Complex x) { return Complex(1) / x; });
}

void add(const Op& op) {
  binary(
      op, [](double a, double b) { return a + b; }, [](Int a, Int b) -> Int { return a + b; },
      [](Complex a, Complex b) { return a + b; });
}
void sub(const Op& op) {
  binary(
      op, [](double a, double b) { return a - b; }, [](Int a, Int b) -> Int { return a - b; },
      [](Complex a, Complex b) { return a - b; });
}

void mul(const Op& op) { binary(op, times, times, times); }

// Divisors are checked before the loop writes anything.
void need_nonzero(const Op& op) {
  const Tensor b = op.in(1);
  if (op.out().elements() == 0) return;
  for (Walk w(b.sizes()); w; w.next())
    if (b.integer(w.index()) == 0)
      op.fail("TSR-R010", "integer division by zero", "make the divisor nonzero, or divide in a floating-point dtype");
}
template <class F>
void integer_checked(const Op& op, F run) {
  if (domain(op.in(1).dtype()) == Domain::Integer) need_nonzero(op);
  run();
}

Int int_floor_mod(Int a, Int b) {
  const Int m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}
// c10::div_floor_floating: exact for every quotient that is representable.
double real_floor_div(double a, double b) {
  if (b == 0) return a / b;
  const double mod = std::fmod(a, b);
  double q = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(q);
  return q - floored > 0.5 ? floored + 1 : floored;
}
double real_floor_mod(double a, double b) {
  const double m = std::fmod(a, b);
  return m != 0 && (b < 0) != (m < 0) ? m + b : m;
}

void div(const Op& op) {
  integer_checked(op, [&] {
    binary(
        op, [](double a, double b) { return a / b; }, [](Int a, Int b) -> Int { return a / b; },
        [](Complex a, Complex b) { return a / b; });
  });
}
void floor_div(const Op& op) {
  integer_checked(op, [&] { binary(op, real_floor_div, [](Int a, Int b) -> Int { return (a - int_floor_mod(a, b)) / b; }); });
}
void remainder(const Op& op) {
  integer_checked(op, [&] { binary(op, real_floor_mod, int_floor_mod); });
}
void fmod(const Op& op) {
  integer_checked(op, [&] {
    binary(
        op, [](double a, double b) { return std::fmod(a, b); }, [](Int a, Int b) -> Int { return a % b; });
  });
}

// A negative exponent gives the truncated quotient: 0, but for the bases 1 and -1 (at::native::powi).
Int int_pow(Int a, Int b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
  Int r = 1;
  for (; b > 0; b >>= 1) {
    if (b & 1) r = times(r, a);
    a = times(a, a);
  }
  return r;
}
void pow(const Op& op) {
  binary(
      op, [](double a, double b) { return std::pow(a, b); }, int_pow);
}
void atan2(const Op& op) {
  binary(op, [](double a, double b) { return std::atan2(a, b); });
}
void hypot(const Op& op) {
  binary(op, [](double a, double b) { return std::hypot(a, b); });
}
void copysign(const Op& op) {
  binary(op, [](double a, double b) { return std::copysign(a, b); });
}

// The neighbour in the operands' own format: f16 and bf16 step through their bit patterns, whose order is that of the
// magnitudes.
void nextafter(const Op& op) {
  const Tensor y = op.out(), a = op.in(0).broadcast(y.sizes()), b = op.in(1).broadcast(y.sizes());
  const uint32_t dtype = y.dtype();
  for (Walk w(y.sizes()); w; w.next()) {
    const double from = a.real(w.index()), to = b.real(w.index());
    const int64_t at = y.offset(w.index());
    if (dtype == TSR_F64 || std::isnan(from) || std::isnan(to) || from == to) {
      y.put<double>(at, std::nextafter(from, to));
    } else if (dtype == TSR_F32) {
      y.put<double>(at, std::nextafterf(static_cast<float>(from), static_cast<float>(to)));
    } else {
      y.put<double>(at, from);
      const Tensor pattern = y.as(TSR_U16);
      const Int bits = pattern.get<Int>(at);
      if (from == 0)
        pattern.put<Int>(at, to > 0 ? 0x0001 : 0x8001);  // the smallest subnormal, with the sign of the direction
      else
        pattern.put<Int>(at, (from < to) == (from > 0) ? bits + 1 : bits - 1);
    }
  }
}

// ------------------------------------------------------------------------------------------------ comparison, selection

double nan_max(double a, double b) { return std::isnan(a) || a > b ? a : b; }  // b when b is NaN
double nan_min(double a, double b) { return std::isnan(a) || a < b ? a : b; }
void maximum(const Op& op) {
  binary(op, nan_max, [](Int a, Int b) -> Int { return a > b ? a : b; });
}
void minimum(const Op& op) {
  binary(op, nan_min, [](Int a, Int b) -> Int { return a < b ? a : b; });
}
void fmax(const Op& op) {
  binary(op, [](double a, double b) { return std::fmax(a, b); });
}
void fmin(const Op& op) {
  binary(op, [](double a, double b) { return std::fmin(a, b); });
}

template <class T>
void compare_as(const Op& op, bool (*f)(T, T)) {
  const Tensor y = op.out(), a = op.in(0).broadcast(y.sizes()), b = op.in(1).broadcast(y.sizes());
  for (Walk w(y.sizes()); w; w.next()) {
    const Index& i = w.index();
    y.put<Int>(y.offset(i), f(a.get<T>(a.offset(i)), b.get<T>(b.offset(i))));
  }
}
void compare(const Op& op, bool (*real)(double, double), bool (*integer)(Int, Int),
             bool (*complex)(Complex, Complex) = nullptr) {
  switch (domain(op.in(0).dtype())) {
    case Domain::Real: return compare_as(op, real);
    case Domain::Integer: return compare_as(op, integer);
    case Domain::Complex: return complex ? compare_as(op, complex) : wrong_dtype(op);
  }
}
void eq(const Op& op) {
  compare(
      op, [](double a, double b) { return a == b; }, [](Int a, Int b) { return a == b; },
      [](Complex a, Complex b) { return a == b; });
}
void ne(const Op& op) {
  compare(
      op, [](double a, double b) { return a != b; }, [](Int a, Int b) { return a != b; },
      [](Complex a, Complex b) { return a != b; });
}
void lt(const Op& op) {
  compare(
      op, [](double a, double b) { return a < b; }, [](Int a, Int b) { return a < b; });
}
void le(const Op& op) {
  compare(
      op, [](double a, double b) { return a <= b; }, [](Int a, Int b) { return a <= b; });
}
void gt(const Op& op) {
  compare(
      op, [](double a, double b) { return a > b; }, [](Int a, Int b) { return a > b; });
}
void ge(const Op& op) {
  compare(
      op, [](double a, double b) { return a >= b; }, [](Int a, Int b) { return a >= b; });
}

void test(const Op& op, bool (*f)(double)) {
  const Tensor x = op.in(0), y = op.out();
  for (Walk w(y.sizes()); w; w.next()) y.put<Int>(y.offset(w.index()), f(x.real(w.index())));
}
void is_nan(const Op& op) {
  test(op, [](double x) { return std::isnan(x); });
}
void is_inf(const Op& op) {
  test(op, [](double x) { return std::isinf(x); });
}
void is_finite(const Op& op) {
  test(op, [](double x) { return std::isfinite(x); });
}

void select(const Op& op) {
  const Tensor y = op.out(), c = op.in(0).broadcast(y.sizes()), a = op.in(1).broadcast(y.sizes()),
               b = op.in(2).broadcast(y.sizes());
  for (Walk w(y.sizes()); w; w.next()) {
    const Tensor& from = c.integer(w.index()) != 0 ? a : b;
    y.copy_element(y.offset(w.index()), from, from.offset(w.index()));
  }
}

// min(max(x, lo), hi): where lo > hi the result is hi, and x where it equals a bound (zeros have signs), as torch.clamp.
double at_least(double x, double lo) { return std::isnan(lo) || x < lo ? (std::isnan(x) ? x : lo) : x; }
double at_most(double x, double hi) { return std::isnan(hi) || x > hi ? (std::isnan(x) ? x : hi) : x; }
void clamp(const Op& op) {
  const Tensor y = op.out(), x = op.in(0).broadcast(y.sizes());
  const Tensor lo = op.has(1) ? op.in(1).broadcast(y.sizes()) : Tensor(),
               hi = op.has(2) ? op.in(2).broadcast(y.sizes()) : Tensor();
  const bool real = domain(y.dtype()) == Domain::Real;
  for (Walk w(y.sizes()); w; w.next()) {
    const Index& i = w.index();
    if (real) {
      double v = x.real(i);
      if (lo) v = at_least(v, lo.real(i));
      if (hi) v = at_most(v, hi.real(i));
      y.put<double>(y.offset(i), v);
    } else {
      Int v = x.integer(i);
      if (lo) v = std::max(v, lo.integer(i));
      if (hi) v = std::min(v, hi.integer(i));
      y.put<Int>(y.offset(i), v);
    }
  }
}

// ---------------------------------------------------------------------------------------------------- logic, bits, complex

void logical_not(const Op& op) {
  unary(op, nullptr, [](Int x) -> Int { return x == 0; });
}
void logical_and(const Op& op) {
  binary(op, nullptr, [](Int a, Int b) -> Int { return a && b; });
}
void logical_or(const Op& op) {
  binary(op, nullptr, [](Int a, Int b) -> Int { return a || b; });
}
void logical_xor(const Op& op) {
  binary(op, nullptr, [](Int a, Int b) -> Int { return (a != 0) != (b != 0); });
}

void bitwise_not(const Op& op) {
  if (is_bool(op.in(0).dtype())) return logical_not(op);
  unary(op, nullptr, [](Int x) -> Int { return ~x; });
}
void bitwise_and(const Op& op) {
  binary(op, nullptr, [](Int a, Int b) -> Int { return a & b; });
}
void bitwise_or(const Op& op) {
  binary(op, nullptr, [](Int a, Int b) -> Int { return a | b; });
}
void bitwise_xor(const Op& op) {
  binary(op, nullptr, [](Int a, Int b) -> Int { return a ^ b; });
}

void popcount(const Op& op) {
  const Tensor x = op.in(0), y = op.out();
  const int bits = dtype_bits(x.dtype());
  const uint64_t mask = ~uint64_t{0} >> (64 - bits);
  for (Walk w(y.sizes()); w; w.next())
    y.put<Int>(y.offset(w.index()), __builtin_popcountll(static_cast<uint64_t>(x.integer(w.index())) & mask));
}

// Amounts outside [0, bits) shift everything out: 0, or the sign for the arithmetic right shift.
void shift(const Op& op, bool left) {
  const Tensor y = op.out(), a = op.in(0).broadcast(y.sizes()), b = op.in(1).broadcast(y.sizes());
  const int bits = dtype_bits(y.dtype());
  for (Walk w(y.sizes()); w; w.next()) {
    const Int v = a.integer(w.index()), n = b.integer(w.index());
    const bool inside = n >= 0 && n < bits;
    Int r = 0;
    if (left)
      r = inside ? times(v, Int{1} << static_cast<int>(n)) : 0;
    else
      r = inside ? v >> static_cast<int>(n) : v < 0 ? -1 : 0;
    y.put<Int>(y.offset(w.index()), r);
  }
}
void shift_left(const Op& op) { shift(op, true); }
void shift_right(const Op& op) { shift(op, false); }

void conj(const Op& op) {
  unary(op, nullptr, nullptr, [](Complex z) { return std::conj(z); });
}
void component(const Op& op, bool imaginary) {
  const Tensor x = op.in(0), y = op.out();
  for (Walk w(y.sizes()); w; w.next()) {
    const Complex z = x.get<Complex>(x.offset(w.index()));
    y.put<double>(y.offset(w.index()), imaginary ? z.imag() : z.real());
  }
}
void real(const Op& op) { component(op, false); }
void imag(const Op& op) { component(op, true); }
void complex(const Op& op) {
  const Tensor y = op.out(), re = op.in(0).broadcast(y.sizes()), im = op.in(1).broadcast(y.sizes());
  for (Walk w(y.sizes()); w; w.next()) y.put<Complex>(y.offset(w.index()), {re.real(w.index()), im.real(w.index())});
}

}  // namespace

void unary(const Op& op, RealUnary real, IntUnary integer, ComplexUnary complex) {
  switch (domain(op.in(0).dtype())) {
    case Domain::Real: return real ? map1(op, real) : wrong_dtype(op);
    case Domain::Integer: return integer ? map1(op, integer) : wrong_dtype(op);
    case Domain::Complex: return complex ? map1(op, complex) : wrong_dtype(op);
  }
}
void binary(const Op& op, RealBinary real, IntBinary integer, ComplexBinary complex) {
  switch (domain(op.in(0).dtype())) {
    case Domain::Real: return real ? map2(op, real) : wrong_dtype(op);
    case Domain::Integer: return integer ? map2(op, integer) : wrong_dtype(op);
    case Domain::Complex: return complex ? map2(op, complex) : wrong_dtype(op);
  }
}

std::span<const Entry> elementwise_ops() {
  static constexpr Entry entries[] = {
      {"neg", neg},
      {"sign", sign},
      {"abs", abs},
      {"floor", floor},
      {"ceil", ceil},
      {"round", round},
      {"trunc", trunc},
      {"reciprocal", reciprocal},
      {"add", add},
      {"sub", sub},
      {"mul", mul},
      {"div", div},
      {"floor_div", floor_div},
      {"remainder", remainder},
      {"fmod", fmod},
      {"pow", pow},
      {"atan2", atan2},
      {"hypot", hypot},
      {"copysign", copysign},
      {"nextafter", nextafter},
      {"maximum", maximum},
      {"minimum", minimum},
      {"fmax", fmax},
      {"fmin", fmin},
      {"eq", eq},
      {"ne", ne},
      {"lt", lt},
      {"le", le},
      {"gt", gt},
      {"ge", ge},
      {"is_nan", is_nan},
      {"is_inf", is_inf},
      {"is_finite", is_finite},
      {"select", select},
      {"clamp", clamp},
      {"logical_not", logical_not},
      {"logical_and", logical_and},
      {"logical_or", logical_or},
      {"logical_xor", logical_xor},
      {"bitwise_not", bitwise_not},
      {"bitwise_and", bitwise_and},
      {"bitwise_or", bitwise_or},
      {"bitwise_xor", bitwise_xor},
      {"popcount", popcount},
      {"shift_left", shift_left},
      {"shift_right", shift_right},
      {"conj", conj},
      {"real", real},
      {"imag", imag},
      {"complex", complex},
  };
  return entries;
}

}  // namespace tessera::reference
