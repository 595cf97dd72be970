// SPDX-License-Identifier: Apache-2.0
// The library of functions. Each is a sequence of IEEE operations without branches, written once for every device and for the
// interpreter.
//
// Fused multiply-add appears here only, written as such. f32 functions either stay in f32 or go through f64 and round once at
// the end (0.5 ulp), which needs no hi/lo arithmetic. f64 functions are the platform's, but for those of double_functions.hpp.
// Polynomials: minimax fits of our own where it says so; Cephes (S. Moshier) for tanh and the f64 exp's reduction; the others
// are Taylor and atanh series.
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tessera/kit/builder.hpp"
#include "tessera/kit/double_functions.hpp"
#include "tessera/kit/lower.hpp"
#include "tessera/kit/normal.hpp"
#include "tessera/plugin.hpp"

namespace tessera::kit {

// What double_functions.hpp asks of a number.
static Ex like(Ex x, double value) { return x.lit(value); }
static Ex copysign(Ex magnitude, Ex sign) {
  const bool wide = magnitude.type() == Type::F64;
  const Type u = wide ? Type::U64 : Type::U32;
  const auto top = static_cast<int64_t>(wide ? 0x8000000000000000ull : 0x80000000ull);
  const Ex m = magnitude.as(u), s = sign.as(u);
  return ((m & m.lit(~top)) | (s & s.lit(top))).as(magnitude.type());
}
static Ex exponent(Ex x) {
  const Ex b = x.as(Type::U64);
  return ((b >> 52) | b.lit(int64_t{0x4330000000000000})).as(Type::F64) - 0x1p52;
}
static Ex scaled(Ex x, Ex t) { return (x.as(Type::U64) + (t.as(Type::U64) << 52)).as(Type::F64); }

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

Ex horner(Ex x, std::initializer_list<double> coefficients) {
  auto at = coefficients.begin();
  Ex p = x.lit(*at++);
  for (; at != coefficients.end(); ++at) p = p * x + *at;
  return p;
}
// ---- f32

Ex horner_fma(Ex x, std::initializer_list<double> coefficients) {
  auto at = coefficients.begin();
  Ex p = x.lit(*at++);
  for (; at != coefficients.end(); ++at) p = fma(p, x, p.lit(*at));
  return p;
}

// c = n ln(2) + r, |r| <= ln(2) / 2, for |c| up to 110.
struct Reduction {
  Ex n, r;     // n: i32
  Ex n_float;  // the same number
};
constexpr double kMagic = 12582912.0;  // 1.5 * 2^23: in a sum with it the integer lands in the low mantissa bits
Ex integer_of(Ex sum) { return sum.as(Type::I32) - sum.as(Type::I32).lit(int64_t{0x4B400000}); }
Reduction reduce_exp(Ex c) {
  const Ex t = fma(c, c.lit(1.44269504088896341), c.lit(kMagic)), n = t - kMagic;
  return {integer_of(t), fma(n, n.lit(2.12194440e-4), fma(n, n.lit(-0.693359375), c)), n};
}
// To an integer, |x| up to 2^21. A device that has it as one instruction takes that: it may give -0 for 0.
Ex nearest_f32(Ex x) { return (x + kMagic) - kMagic; }
// The minimax polynomial of (exp(r) - 1 - r) / r^2 on |r| <= ln(2) / 2, relative to exp(r): 4e-9.
constexpr std::initializer_list<double> kExp = {0.0013863143976777792, 0.008367440663278103, 0.04166724532842636,
                                                0.16666534543037415, 0.5};
// exp(c) = 2^n (1 + s): s in [-0.3, 0.42], good to half an ulp of 1.
struct ExpParts {
  Ex n, s, n_float;
};
ExpParts exp_parts(Ex c) {
  const Reduction e = reduce_exp(c);
  return {e.n, fma(horner_fma(e.r, kExp) * e.r, e.r, e.r), e.n_float};
}
Ex power_of_two(Ex n) { return ((n + n.lit(int64_t{127})) << 23).as(Type::F32); }  // -126 <= n <= 127
// x 2^n, rounded once. Where x is NaN, n may be anything. A device that has it as one instruction takes that, with n as a
// float. By how far n reaches: from -159 (subnormals) to 128, in two steps; or to 63, with what the exponent lacks as a
// constant.
Ex ldexp_f32(Ex x, Ex n) {
  const Ex half = n >> 1;
  return (x * power_of_two(half)) * power_of_two(n - half);
}
Ex ldexp_to_63_f32(Ex x, Ex n) { return (x * power_of_two(n + n.lit(int64_t{64}))) * 0x1p-64; }
template <class Parts>
Ex scale(const char* ldexp, Ex x, const Parts& e) {
  return {x.b, x.b->call(ldexp, {x.v, e.n.v, e.n_float.v})};
}

// At most 0.9 ulp, for x as far up as `ldexp` allows. NaN comes through r.
Ex exp_by(const char* ldexp, Ex x) {
  const Reduction e = reduce_exp(select(x < -104.0, x.lit(-104.0), x));
  return scale(ldexp, fma(fma(horner_fma(e.r, kExp), e.r, e.r.lit(1.0)), e.r, e.r.lit(1.0)), e);
}
Ex exp_to_43_f32(Ex x) { return exp_by("ldexp_to_63_f32", x); }
Ex exp_f32(Ex x) { return exp_by("ldexp_f32", select(x > 89.0, x.lit(89.0), x)); }

// From 0.625 on 1 - 2 / (exp(2x) + 1), with the rounding errors of the sum and the quotient taken along; below an odd
// polynomial. At most 0.7 ulp.
Ex tanh_f32(Ex x) {
  const Ex a = abs(x), twice = a + a;
  const ExpParts e = exp_parts(select(twice > 30.0, x.lit(30.0), twice));
  const Ex p = power_of_two(e.n), whole = p + 1.0, part = p * e.s;
  const Ex d = whole + part, dl = (whole - d) + part;
  const Ex t = 2.0 / d, rest = fma(-t, dl, fma(-t, d, t.lit(2.0)));
  const Ex hi = 1.0 - t, lo = ((1.0 - hi) - t) - (rest * t) * 0.5;
  const Ex z = x * x;
  const Ex q = horner_fma(z, {-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1});
  return copysign(select(a >= 0.625, hi + lo, fma(q * z, a, a)), x);  // NaN comes through
}

// With u = exp(-|x|) = 2^n (1 + s): 1 / (1 + u), or (1 + s) / (1 + u), the quotient as a sum of two.
struct SigmoidParts {
  Ex whole;  // is x >= 0
  Ex value;  // for x >= 0; otherwise times 2^n
  ExpParts e;
};
SigmoidParts sigmoid_parts(Ex x) {
  const Ex a = abs(x);
  const ExpParts e = exp_parts(-select(a > 110.0, x.lit(110.0), a));
  const Ex least = e.n.lit(int64_t{-40}), p = power_of_two(select(e.n < least, least, e.n));
  const Ex u = fma(p, e.s, p), d = 1.0 + u, dl = (1.0 - d) + u;
  const Ex t = 1.0 / d, c = fma(-t, dl, fma(-t, d, t.lit(1.0))) * t, positive = x >= 0.0;
  return {positive, t + select(positive, c, fma(e.s, t, fma(e.s, c, c))), e};
}
// NaN comes through both.
Ex sigmoid_f32(Ex x) {  // at most 1.25 ulp
  const SigmoidParts s = sigmoid_parts(x);
  return select(s.whole, s.value, scale("ldexp_to_63_f32", s.value, s.e));
}
Ex silu_f32(Ex x) {  // at most 1.95 ulp
  const SigmoidParts s = sigmoid_parts(x);
  const Ex y = x * select(x < -110.0, 0.0, s.value);  // of -inf NaN
  return select(s.whole, y, scale("ldexp_to_63_f32", y, s.e));
}

// Below 0.95 an odd polynomial; from there 1 - exp(-P(|x|)), 1 up to rounding from 4 on. Minimax fits of ours, relative
// (6e-10) and absolute (4e-11). At most 1.0 ulp.
Ex erf_f32(Ex x) {
  const Ex a = abs(x), z = x * x;
  const Ex p = horner_fma(z, {8.185086335288361e-05, -0.0008097701938822865, 0.005196951795369387, -0.026857705786824226,
                              0.11283663660287857, -0.37612631916999817, 0.12837916612625122});
  const Ex q = horner_fma(select(a > 4.0, x.lit(4.0), a),
                          {2.1278858184814453e-05, -0.00043657602509483695, 0.004181245807558298, -0.025146089494228363,
                           0.10832108557224274, 0.6333098411560059, 1.1295331716537476, -0.0001784535270417109});
  const ExpParts e = exp_parts(-q);
  const Ex u = power_of_two(e.n);
  const Ex big = copysign(fma(-u, e.s, 1.0 - u), x);
  return select(a < 0.95, fma(x, p, x), big);  // NaN comes through
}

// x times the normal distribution function, whose tail is 2^P(|x|) / 2 with the P of degree 8, P(0) = 0, that makes the
// absolute error of the tail least (8e-9, up to 5.7; beyond, the tail is below 2^-26 and its error does not matter; from 10.3
// on it is 0). 2^f is a minimax fit of ours, relative (2e-9), half of which stands here. P / |x| comes from its even and its
// odd powers: fewer operations wait for each other. At most 1.65 ulp of x.
Ex gelu_f32(Ex x) {
  const Ex m = abs(x), a = select(m > 10.3125, x.lit(10.3125), m), z = a * a;
  const Ex even = horner_fma(z, {3.9377689972752705e-05, -0.00013693637447431684, -0.052496179938316345, -1.1511051654815674});
  const Ex odd = horner_fma(z, {-2.834912720572902e-06, -0.00018618024478200823, 0.00706342002376914, -0.4592081904411316});
  const Ex p = fma(odd, a, even) * a;
  const Ex n{x.b, x.b->call("nearest_f32", {p.v})};
  const Reduction e{integer_of(p + kMagic), p - n, n};
  const Ex half = horner_fma(e.r, {7.676680979784578e-05, 0.0006699436926282942, 0.00480921845883131, 0.027751661837100983,
                                   0.12011323869228363, 0.3465735912322998, 0.5});
  const Ex tail = scale("ldexp_to_63_f32", half, e);
  return x * select(x > 0.0, 1.0 - tail, tail);
}

// No further from 0 than the limit. A device that has it as one instruction takes that: it may give the limit for NaN.
Ex within_f32(Ex x, Ex limit) { return select(abs(x) > limit, copysign(limit, x), x); }
// x times the normal distribution function in pieces. At most 1.4 ulp of x.
Ex gelu_tables_f32(Ex x) {
  const Ex c{x.b, x.b->call("within_f32", {x.v, x.lit(double{kNormalLimit}).v})};
  const Ex t = fma(c, x.lit(double{kNormalSteps}), x.lit(kMagic)), d = fma(t - kMagic, x.lit(-double{kNormalStep}), c);
  const auto coefficient = [&](const char* table) { return Ex{x.b, x.b->lookup(table, t.as(Type::I32).v)}; };
  Ex y = coefficient("normal5");
  for (const char* table : {"normal4", "normal3", "normal2", "normal1", "normal0"}) y = fma(y, d, coefficient(table));
  return x * y;
}

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation for negative x. At most 1.5 ulp
// of x.
Ex gelu_tanh_f32(Ex x) {
  const Ex u = x * fma(x * x, x.lit(-1.5957691216057308 * 0.044715), x.lit(-1.5957691216057308));
  return x / (1.0 + exp_f32(u));
}

// 1 / sqrt(x), with what the root and the quotient round off: 0.5 ulp. In f64 a thread of a GPU would wait for its root alone
// as long as for the rest of a norm's row. Below 2^-100 the remainder of the root would be subnormal.
Ex rsqrt_f32(Ex x) {
  const Ex tiny = x < 0x1p-100, y = select(tiny, x * 0x1p64, x);
  const Ex s = sqrt(y), r = 1.0 / s, one = x.lit(1.0);
  const Ex rest = fma(-s, s, y) * r * r;
  const Ex better = fma(r, fma(rest, x.lit(-0.5), fma(-s, r, one)), r);
  const Ex z = select((y > 0.0) & (y < kInf), better, r);
  return select(tiny, z * 0x1p32, z);
}

// ---- f64, for f32 results

struct Reduced {
  Ex n, bits;  // the integer, as a number and in the low bits of an i64
};
Reduced round_to_integer(Ex x) {
  const Ex t = x + 6755399441055744.0;
  return {t - 6755399441055744.0, t.as(Type::I64)};
}
Ex exponent_of(Ex n) { return (n << 52).as(Type::F64); }  // n: the biased exponent

Ex dexp(Ex x) {
  Ex c = select(x > 710.0, x.lit(710.0), x);
  c = select(c < -745.5, c.lit(-745.5), c);
  const Reduced q = round_to_integer(c * 1.4426950408889634);
  const Ex i = q.bits - q.bits.lit(int64_t{0x4338000000000000});
  const Ex r = (c - q.n * 0x1.62e42fee00000p-1) - q.n * 0x1.a39ef35793c76p-33;
  Ex p = horner(
      r, {1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5});
  p = (p * (r * r) + r) + 1.0;
  // i / 2 by a logical shift of the biased value: AVX2 has no arithmetic one for 64 bits.
  const Ex u = (i + i.lit(int64_t{2048})).as(Type::U64) >> 1;
  const Ex i1 = u.as(Type::I64) - i.lit(int64_t{1024});
  const Ex bias = i.lit(int64_t{1023});
  const Ex y = (p * exponent_of(i1 + bias)) * exponent_of((i - i1) + bias);
  return select(ne(x, x), x, y);
}

// x: any f32 value, or a product of such (positive normal f64, zero, negative, infinite, NaN).
Ex dlog(Ex x) {
  const Ex b = x.as(Type::U64);
  // Exponent such that the mantissa m lies in [sqrt(1/2), sqrt(2)).
  const Ex e = ((b - b.lit(int64_t{0x3fe6a09e667f3bcd})) >> 52).as(Type::I64);
  const Ex k = select(e < e.lit(int64_t{2048}), e, e - e.lit(int64_t{4096}));
  const Ex m = (b - (k.as(Type::U64) << 52)).as(Type::F64);
  const Ex kd = (k + k.lit(int64_t{0x4338000000000000})).as(Type::F64) - 6755399441055744.0;
  const Ex s = (m - 1.0) / (m + 1.0);
  const Ex z = s * s;
  const Ex p = horner(z, {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3});
  const Ex y = kd * 0x1.62e42fefa39efp-1 + (2.0 * s + (2.0 * s) * (p * z));
  const Ex finite = select(eq(x, kInf), x, y);
  return select(x > 0.0, finite, select(eq(x, 0.0), x.lit(-kInf), x.lit(kNan)));
}

Ex dexpm1(Ex x) {
  const Ex p = horner(x, {1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5});
  const Ex small = x * (p * x + 1.0);  // of -0: -0
  return select(abs(x) < 0.03125, small, dexp(x) - 1.0);
}

Ex dlog1p(Ex x) {
  const Ex u = 1.0 + x;
  const Ex d = u - 1.0;
  const Ex l = dlog(u);
  const Ex y = l * (x / d);  // W. Kahan: the rounding error of u cancels
  return select(eq(d, 0.0), x, select(eq(u, kInf) | (u <= 0.0), l, y));
}

// sin (phase 0) and cos (phase 1) for |x| < 2^20.
Ex dsincos(Ex x, int64_t phase) {
  const Reduced t = round_to_integer(x * 0x1.45f306dc9c883p-1);
  const Ex q = t.bits + t.bits.lit(phase);
  const Ex r = ((x - t.n * 0x1.921fb54400000p+0) - t.n * 0x1.0b4611a600000p-34) - t.n * 0x1.3198a2e037073p-69;
  const Ex z = r * r;
  Ex s = horner(z, {1.0 / 6227020800.0, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6});
  s = r * (s * z + 1.0);  // of -0: -0
  const Ex c = horner(z, {1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0});
  const Ex y = select(ne(q & q.lit(int64_t{1}), q.lit(int64_t{0})), c, s);
  return (y.as(Type::I64) ^ ((q & q.lit(int64_t{2})) << 62)).as(Type::F64);
}

// As C's pow. Whether b is an integer, and odd, is seen by rounding to integers: exact, since every f32 beyond 2^24 is even.
Ex dpow(Ex a, Ex b) {
  const double magic = 6755399441055744.0;
  const Ex y0 = dexp(b * dlog(abs(a)));
  const Ex e = select(abs(b) < 1e9, b, 0.0), half = 0.5 * e;
  const Ex odd_or_even = select(eq((half + magic) - magic, half), y0, copysign(y0, a));
  const Ex fraction = select(a < 0.0, a.lit(kNan), y0);
  const Ex is_whole = eq((e + magic) - magic, e);
  const Ex whole = select(is_whole, odd_or_even, fraction);
  Ex v = select(eq(a, -kInf) & !is_whole, y0, whole);
  v = select(ne(a, a), a, v);
  v = select(ne(b, b), b, v);
  v = select(eq(b, 1.0), a, v);
  v = select(eq(b, 2.0), a * a, v);
  v = select(eq(b, 3.0), (a * a) * a, v);
  v = select(eq(b, 0.0), 1.0, v);
  v = select(eq(a, 1.0), 1.0, v);
  return select(eq(a, -1.0) & eq(abs(b), kInf), 1.0, v);
}

// tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2)
Ex dmish(Ex x) {
  const Ex e = dexp(select(x > 30.0, x.lit(30.0), x));
  const Ex q = e * (e + 2.0);
  return select(eq(x, -kInf), x.lit(kNan), x * (q / (q + 2.0)));
}

// Remainders after fmod; as PyTorch.
Ex remainder_of(Ex r, Ex b) {
  const Ex zero = r.lit(0.0);
  return select(ne(r, zero) & ((r < zero) ^ (b < zero)), r + b, r);
}
Ex floor_div_of(Ex a, Ex b, Ex mod) {
  const Ex zero = a.lit(0.0);
  Ex q = (a - mod) / b;
  q = select(ne(mod, zero) & ((b < zero) ^ (mod < zero)), q - 1.0, q);
  const Ex low{q.b, q.b->unary(Op::Floor, q.v)};
  const Ex near = select((q - low) > 0.5, low + 1.0, low);
  return select(eq(b, 0.0), a / b, select(eq(q, 0.0), copysign(zero, a / b), near));
}

class Library {
 public:
  Library() {
    for (const char* name : {"exp",  "exp2", "expm1", "log",  "log2", "log10", "log1p", "sin",   "cos",   "tan",
                             "asin", "acos", "atan",  "sinh", "cosh", "tanh",  "asinh", "acosh", "atanh", "erf"})
      external(name, {Type::F64});
    for (const char* name : {"pow", "atan2", "hypot", "fmod"}) external(name, {Type::F64, Type::F64});
    // Only where the second operand is true.
    guarded("sin");
    guarded("cos");

    define("ldexp_f32", {Type::F32, Type::I32, Type::F32}, [](auto& a) { return ldexp_f32(a[0], a[1]); });
    define("ldexp_to_63_f32", {Type::F32, Type::I32, Type::F32}, [](auto& a) { return ldexp_to_63_f32(a[0], a[1]); });
    f32("nearest_f32", 1, [](auto& a) { return nearest_f32(a[0]); });
    f32("exp_f32", 1, [](auto& a) { return exp_f32(a[0]); });
    f32("exp_to_43_f32", 1, [](auto& a) { return exp_to_43_f32(a[0]); });
    f32("tanh_f32", 1, [](auto& a) { return tanh_f32(a[0]); });
    f32("sigmoid_f32", 1, [](auto& a) { return sigmoid_f32(a[0]); });
    f32("silu_f32", 1, [](auto& a) { return silu_f32(a[0]); });
    f32("erf_f32", 1, [](auto& a) { return erf_f32(a[0]); });
    f32("cube_f32", 1, [](auto& a) {  // as pow
      const Ex x = a[0].to(Type::F64);
      return ((x * x) * x).to(Type::F32);
    });
    f32("within_f32", 2, [](auto& a) { return within_f32(a[0], a[1]); });
    f32("gelu_tables_f32", 1, [](auto& a) { return gelu_tables_f32(a[0]); });
    f32("gelu_f32", 1, [](auto& a) { return gelu_f32(a[0]); });
    all.back().from_tables = names.at("gelu_tables_f32");
    f32("gelu_tanh_f32", 1, [](auto& a) { return gelu_tanh_f32(a[0]); });
    wide("exp2_f32", [](Ex x) { return dexp(x * 0.6931471805599453); });
    wide("expm1_f32", dexpm1);
    wide("log_f32", dlog);
    wide("log2_f32", [](Ex x) { return dlog(x) * 1.4426950408889634; });
    wide("log10_f32", [](Ex x) { return dlog(x) * 0.4342944819032518; });
    wide("log1p_f32", dlog1p);
    f32("rsqrt_f32", 1, [](auto& a) { return rsqrt_f32(a[0]); });
    wide("selu_f32", [](Ex x) {
      return 1.0507009873554804934193349852946 * select(x > 0.0, x, 1.6732632423543772848170429916717 * dexpm1(x));
    });
    wide("mish_f32", [](Ex x) { return select(ne(x, x), x, dmish(x)); });
    // Attributes are f64 operands.
    wide_with("elu_f32", 1, [](auto& a) { return select(a[0] > 0.0, a[0], a[1] * dexpm1(a[0])); });
    wide_with("celu_f32", 1, [](auto& a) { return select(a[0] > 0.0, a[0], a[1] * dexpm1(a[0] / a[1])); });
    wide_with("softplus_f32", 2, [](auto& a) { return select(a[0] * a[1] > a[2], a[0], dlog1p(dexp(a[0] * a[1])) / a[1]); });
    trig("sin_f32", "sin_where", 0);
    trig("cos_f32", "cos_where", 1);
    f32("pow_f32", 2, [](auto& a) { return dpow(a[0].to(Type::F64), a[1].to(Type::F64)).to(Type::F32); });
    wide("cbrt_f32", narrow_cbrt_of<Ex>);
    wide("erfc_f32", narrow_erfc_of<Ex>);
    for (const char* name : {"tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"})
      wide(std::string(name) + "_f32", [name](Ex x) { return call(std::string(name) + "_f64", x); });
    for (const char* name : {"atan2", "hypot", "fmod"})
      f32(std::string(name) + "_f32", 2,
          [name](auto& a) { return call(std::string(name) + "_f64", a[0].to(Type::F64), a[1].to(Type::F64)).to(Type::F32); });
    f32("remainder_f32", 2, [](auto& a) { return remainder_of(call("fmod_f32", a[0], a[1]), a[1]); });
    f32("floor_div_f32", 2, [](auto& a) { return floor_div_of(a[0], a[1], call("fmod_f32", a[0], a[1])); });

    // f64
    f64("cbrt_f64", 1, [](auto& a) { return cbrt_of(a[0]); });
    f64("erfc_f64", 1, [](auto& a) { return erfc_of(a[0]); });
    f64("rsqrt_f64", 1, [](auto& a) { return 1.0 / sqrt(a[0]); });
    f64("sigmoid_f64", 1, [](auto& a) { return 1.0 / (1.0 + call("exp_f64", -a[0])); });
    f64("gelu_f64", 1, [](auto& a) { return (0.5 * a[0]) * call("erfc_f64", -a[0] * 0.70710678118654752440); });
    f64("gelu_tanh_f64", 1, [](auto& a) {
      const Ex x = a[0];
      return x / (1.0 + call("exp_f64", -1.5957691216057307118 * (x + 0.044715 * (x * x * x))));
    });
    f64("silu_f64", 1, [](auto& a) { return a[0] / (1.0 + call("exp_f64", -a[0])); });
    f64("mish_f64", 1, [](auto& a) {
      const Ex x = a[0];
      return x * call("tanh_f64", select(x > 40.0, x, call("log1p_f64", call("exp_f64", x))));
    });
    f64("selu_f64", 1, [](auto& a) {
      const Ex x = a[0];
      return 1.0507009873554804934193349852946 * select(x > 0.0, x, 1.6732632423543772848170429916717 * call("expm1_f64", x));
    });
    f64("elu_f64", 2, [](auto& a) { return select(a[0] > 0.0, a[0], a[1] * call("expm1_f64", a[0])); });
    f64("celu_f64", 2, [](auto& a) { return select(a[0] > 0.0, a[0], a[1] * call("expm1_f64", a[0] / a[1])); });
    f64("softplus_f64", 3,
        [](auto& a) { return select(a[0] * a[1] > a[2], a[0], call("log1p_f64", call("exp_f64", a[0] * a[1])) / a[1]); });
    f64("remainder_f64", 2, [](auto& a) { return remainder_of(call("fmod_f64", a[0], a[1]), a[1]); });
    f64("floor_div_f64", 2, [](auto& a) { return floor_div_of(a[0], a[1], call("fmod_f64", a[0], a[1])); });
  }

  std::vector<Function> all;
  std::unordered_map<std::string, uint32_t> names;

 private:
  void insert(Function f) {
    names.emplace(f.name, static_cast<uint32_t>(all.size()));
    all.push_back(std::move(f));
  }
  void external(const std::string& name, std::vector<Type> params) {
    Function f;
    f.name = name + "_f64";
    f.params = std::move(params);
    f.result = Type::F64;
    f.external = name;
    insert(std::move(f));
  }
  void guarded(const std::string& name) {
    Function f;
    f.name = name + "_where";
    f.params = {Type::F64, Type::Bool};
    f.result = Type::F64;
    f.external = name;
    insert(std::move(f));
  }
  template <class F>
  void define(std::string name, std::vector<Type> params, F body);
  template <class F>
  void f32(std::string name, size_t n, F body) {
    define(std::move(name), std::vector<Type>(n, Type::F32), body);
  }
  template <class F>
  void f64(std::string name, size_t n, F body) {
    define(std::move(name), std::vector<Type>(n, Type::F64), body);
  }
  template <class F>
  void wide(std::string name, F body) {
    f32(std::move(name), 1, [body](auto& a) { return body(a[0].to(Type::F64)).to(Type::F32); });
  }
  template <class F>
  void wide_with(std::string name, size_t more, F body) {
    std::vector<Type> params{Type::F32};
    params.insert(params.end(), more, Type::F64);
    define(std::move(name), params, [body](auto& a) {
      a[0] = a[0].to(Type::F64);
      return body(a).to(Type::F32);
    });
  }
  void trig(const std::string& name, const std::string& where, int64_t phase) {
    f32(name, 1, [where, phase](auto& a) {
      const Ex x = a[0].to(Type::F64), fast = dsincos(x, phase), far = !(abs(x) < 1048576.0);
      return select(far, call(where, x, far), fast).to(Type::F32);
    });
  }
};

// Set while the library is made: functions may call those before them.
thread_local const Library* building = nullptr;

template <class F>
void Library::define(std::string name, std::vector<Type> params, F body) {
  Function f;
  f.name = std::move(name);
  f.params = std::move(params);
  Builder b(f);
  std::vector<Ex> args;
  for (uint32_t i = 0; i < f.params.size(); ++i) {
    Inst p;
    p.op = Op::Param;
    p.type = f.params[i];
    p.id = i;
    args.push_back({&b, b.emit(p)});
  }
  building = this;  // calls of functions that stand before this one
  const Ex out = body(args);
  building = nullptr;
  f.value = out.v;
  f.result = out.type();
  insert(std::move(f));
}

const Library& library() {
  if (building) return *building;
  static const Library l;
  return l;
}

constexpr const char* kTables[] = {"normal0", "normal1", "normal2", "normal3", "normal4", "normal5"};

}  // namespace

const Table& table(uint32_t id) {
  static const std::vector<Table> all = [] {
    std::vector<Table> t;
    for (const char* name : kTables) t.push_back({name, kNormal[t.size()]});
    return t;
  }();
  return all[id];
}
size_t num_tables() { return std::size(kTables); }
uint32_t table_named(std::string_view name) {
  for (uint32_t i = 0; i < std::size(kTables); ++i)
    if (name == kTables[i]) return i;
  throw sdk::Error(TSR_BUG, "TSR-K022", "the kernel kit has no table '" + std::string(name) + "'");
}

void use_tables(Kernel& k) {
  for (Inst& x : k.insts)
    if (x.op == Op::Call && function(x.id).from_tables != kNone) x.id = function(x.id).from_tables;
}

const Function& function(uint32_t id) { return library().all[id]; }
size_t num_functions() { return library().all.size(); }
uint32_t function_named(std::string_view name) {
  const auto& names = library().names;
  const auto at = names.find(std::string(name));
  if (at == names.end()) throw sdk::Error(TSR_BUG, "TSR-K022", "the kernel kit has no function '" + std::string(name) + "'");
  return at->second;
}

}  // namespace tessera::kit
