// SPDX-License-Identifier: Apache-2.0
// Elementwise ops that vectorise. Compiled once per ISA; everything in it has internal linkage but the lookup function.
#include "isa.hpp"
#include "tessera/kit/double_functions.hpp"
#include "tile_loops.hpp"
#include "vec_math.hpp"

namespace eager {
namespace {

struct Entry {
  Op op;
  Comp comp;
  TileFn fn;
};

// ---- unary floats

// The attributes, by value: a load that only one branch needs would keep a loop from being vectorised.
struct Params {
  double a = 0, b = 0;
};
Params params_of(const TileArgs& t) { return t.params ? Params{t.params[0], t.params[1]} : Params{}; }

template <class T, class F>
void u(const TileArgs& a) {
  map1<T>(a, F{params_of(a)});
}
template <class T, class F>
void p(const TileArgs& a) {  // predicates
  map1<T, uint8_t>(a, F{params_of(a)});
}

#define EAGER_FN(NAME, T, EXPR)                                        \
  struct NAME {                                                        \
    Params k;                                                          \
    [[gnu::always_inline]] auto operator()(T x) const { return EXPR; } \
  };
#define EAGER_FN_BOTH(NAME, EXPR)                                      \
  template <class T>                                                   \
  struct NAME {                                                        \
    Params k;                                                          \
    [[gnu::always_inline]] auto operator()(T x) const { return EXPR; } \
  };

// f32 through f64, rounded once
#define EAGER_FN_WIDE(NAME, EXPR)                            \
  struct NAME {                                              \
    Params k;                                                \
    [[gnu::always_inline]] float operator()(float v) const { \
      const double x = v;                                    \
      return static_cast<float>(EXPR);                       \
    }                                                        \
  };

EAGER_FN_BOTH(Abs, fabs_(x))
EAGER_FN_BOTH(Neg, -x)
EAGER_FN_BOTH(Sign, static_cast<T>((x > 0) - (x < 0)))
EAGER_FN_BOTH(Sqrt, static_cast<T>(sizeof(T) == 4 ? __builtin_sqrtf(static_cast<float>(x)) : __builtin_sqrt(x)))
EAGER_FN_BOTH(Reciprocal, T(1) / x)
EAGER_FN_BOTH(Floor, static_cast<T>(sizeof(T) == 4 ? __builtin_floorf(static_cast<float>(x)) : __builtin_floor(x)))
EAGER_FN_BOTH(Ceil, static_cast<T>(sizeof(T) == 4 ? __builtin_ceilf(static_cast<float>(x)) : __builtin_ceil(x)))
EAGER_FN_BOTH(Trunc, static_cast<T>(sizeof(T) == 4 ? __builtin_truncf(static_cast<float>(x)) : __builtin_trunc(x)))
EAGER_FN_BOTH(Round, static_cast<T>(sizeof(T) == 4 ? __builtin_nearbyintf(static_cast<float>(x)) : __builtin_nearbyint(x)))
EAGER_FN_BOTH(IsNan, static_cast<uint8_t>(x != x))
EAGER_FN_BOTH(IsInf, static_cast<uint8_t>(fabs_(x) == kInf<T>))
EAGER_FN_BOTH(IsFinite, static_cast<uint8_t>(fabs_(x) < kInf<T>))
EAGER_FN_BOTH(Relu, x > 0 ? x : (x != x ? x : T(0)))
template <class T>
[[gnu::always_inline]] inline T choose(bool c, T a, T b) {
  return c ? a : b;
}
EAGER_FN_BOTH(LeakyRelu, choose(x > 0, x, x* static_cast<T>(k.a)))
template <class T>
[[gnu::always_inline]] inline T clamp01(T x) {
  const T low = x < 0 ? T(0) : x;  // NaN stays
  return low > 1 ? T(1) : low;
}
EAGER_FN_BOTH(HardSigmoid, clamp01(x* static_cast<T>(k.a) + static_cast<T>(k.b)))
template <class T>
[[gnu::always_inline]] inline T relu6(T x) {
  const T low = x < 0 ? T(0) : x;
  return low > 6 ? T(6) : low;
}
EAGER_FN_BOTH(HardSwish, x* relu6(x + T(3)) / T(6))

EAGER_FN(Rsqrt32, float, static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x))))
EAGER_FN(Rsqrt64, double, 1.0 / __builtin_sqrt(x))
EAGER_FN(Exp, float, fexp(x))
EAGER_FN_WIDE(Tanh, dtanh_short(x))
EAGER_FN_WIDE(Sigmoid, dsigmoid_short(x))
EAGER_FN_WIDE(Erf, derf_short(x))
// -inf * 0: the short exponential does not reach 0 by itself
EAGER_FN_WIDE(Gelu, x == -kInf<double> ? kNan<double> : x * dphi_short(x))
// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): no cancellation for negative x
EAGER_FN_WIDE(GeluTanh,
              x == -kInf<double> ? kNan<double> : x * dsigmoid_short(1.5957691216057308 * (x + 0.044715 * (x * x * x))))
EAGER_FN_WIDE(Silu, x == -kInf<double> ? kNan<double> : x * dsigmoid_short(x))
EAGER_FN_WIDE(Exp2, dexp(x * 0.6931471805599453))
EAGER_FN_WIDE(Expm1, dexpm1(x))
EAGER_FN_WIDE(Log, dlog(x))
EAGER_FN_WIDE(Log2, dlog(x) * 1.4426950408889634)
EAGER_FN_WIDE(Log10, dlog(x) * 0.4342944819032518)
EAGER_FN_WIDE(Log1p, dlog1p(x))
EAGER_FN_WIDE(Elu, choose(x > 0, x, k.a* dexpm1(x)))
EAGER_FN_WIDE(Selu, 1.0507009873554804934193349852946 * choose(x > 0, x, 1.6732632423543772848170429916717 * dexpm1(x)))
EAGER_FN_WIDE(Celu, choose(x > 0, x, k.a* dexpm1(x / k.a)))
EAGER_FN_WIDE(Softplus, choose(x* k.a > k.b, x, dlog1p(dexp(x* k.a)) / k.a))
// tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2)
[[gnu::always_inline]] inline double dmish(double x) {
  const double e = dexp(x > 30.0 ? 30.0 : x);
  const double q = e * (e + 2.0);
  return x == -kInf<double> ? kNan<double> : x * (q / (q + 2.0));
}
EAGER_FN_WIDE(Mish, x != x ? x : dmish(x))

// A double as tessera/kit/double_functions.hpp takes it.
struct Number {
  double v;
};
#define EAGER_NUMBER(OP)                                                                        \
  [[gnu::always_inline]] inline Number operator OP(Number a, Number b) { return {a.v OP b.v}; } \
  [[gnu::always_inline]] inline Number operator OP(Number a, double b) { return {a.v OP b}; }   \
  [[gnu::always_inline]] inline Number operator OP(double a, Number b) { return {a OP b.v}; }
EAGER_NUMBER(+)
EAGER_NUMBER(-)
EAGER_NUMBER(*)
EAGER_NUMBER(/)
[[gnu::always_inline]] inline Number operator-(Number a) { return {-a.v}; }
[[gnu::always_inline]] inline bool operator<(Number a, double b) { return a.v < b; }
[[gnu::always_inline]] inline bool operator<=(Number a, double b) { return a.v <= b; }
[[gnu::always_inline]] inline bool operator>(Number a, double b) { return a.v > b; }
[[gnu::always_inline]] inline Number like(Number, double v) { return {v}; }
[[gnu::always_inline]] inline Number fma(Number a, Number b, Number c) { return {__builtin_fma(a.v, b.v, c.v)}; }
[[gnu::always_inline]] inline Number abs(Number a) { return {fabs_(a.v)}; }
[[gnu::always_inline]] inline Number copysign(Number a, Number b) { return {copysign_(a.v, b.v)}; }
[[gnu::always_inline]] inline Number select(bool c, Number a, Number b) { return {c ? a.v : b.v}; }
[[gnu::always_inline]] inline Number exponent(Number x) {
  return {bits<double>(bits<uint64_t>(x.v) >> 52 | bits<uint64_t>(0x1p52)) - 0x1p52};
}
[[gnu::always_inline]] inline Number scaled(Number x, Number t) {
  return {bits<double>(bits<uint64_t>(x.v) + (bits<uint64_t>(t.v) << 52))};
}
EAGER_FN(Cbrt64, double, tessera::kit::cbrt_of(Number{x}).v)
EAGER_FN(Erfc64, double, tessera::kit::erfc_of(Number{x}).v)
EAGER_FN_WIDE(Cbrt, tessera::kit::narrow_cbrt_of(Number{x}).v)
EAGER_FN_WIDE(Erfc, tessera::kit::narrow_erfc_of(Number{x}).v)

// Arguments beyond the range of the f64 reduction are rare: redone one by one, whatever the neighbours are.
template <int Phase>
void trig(const TileArgs& a) {
  const float* x = static_cast<const float*>(a.in[0]);
  float* y = static_cast<float*>(a.out);
  constexpr float limit = 1048576.0f;
  for (int64_t start = 0; start < a.n; start += 64) {
    const int64_t n = a.n - start < 64 ? a.n - start : 64;
    float in[64], out[64];
    int big = 0;
    for (int64_t i = 0; i < n; ++i) in[i] = x[start + i];
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(dsincos(in[i], Phase));
    for (int64_t i = 0; i < n; ++i) big += !(fabs_(in[i]) < limit);
    if (big)
      for (int64_t i = 0; i < n; ++i)
        if (!(fabs_(in[i]) < limit)) out[i] = static_cast<float>(Phase ? __builtin_cos(in[i]) : __builtin_sin(in[i]));
    for (int64_t i = 0; i < n; ++i) y[start + i] = out[i];
  }
}

// ---- unary integers and bool
EAGER_FN_BOTH(IAbs, static_cast<T>(x < 0 ? T(0) - static_cast<uint64_t>(x) : static_cast<uint64_t>(x)))
EAGER_FN_BOTH(INeg, static_cast<T>(0 - static_cast<uint64_t>(x)))
EAGER_FN_BOTH(ISign, static_cast<T>((x > 0) - (x < 0)))
EAGER_FN_BOTH(INot, static_cast<T>(~x))
EAGER_FN_BOTH(IRelu, x > 0 ? x : T(0))
EAGER_FN_BOTH(BNot, static_cast<uint8_t>(x == 0))

// ---- binary
template <class T, class F>
void b(const TileArgs& a) {
  map2<T>(a, F{});
}
template <class T, class F>
void c(const TileArgs& a) {
  map2<T, uint8_t>(a, F{});
}
#define EAGER_FN2(NAME, EXPR)                                               \
  template <class T>                                                        \
  struct NAME {                                                             \
    [[gnu::always_inline]] auto operator()(T a, T b) const { return EXPR; } \
  };
template <class T>
struct Wrap {
  using type = T;
};  // the type in which + - * wrap
template <>
struct Wrap<int32_t> {
  using type = uint32_t;
};
template <>
struct Wrap<int64_t> {
  using type = uint64_t;
};
template <class T>
using W = typename Wrap<T>::type;
EAGER_FN2(Add, static_cast<T>(static_cast<W<T>>(a) + static_cast<W<T>>(b)))
EAGER_FN2(Sub, static_cast<T>(static_cast<W<T>>(a) - static_cast<W<T>>(b)))
EAGER_FN2(Mul, static_cast<T>(static_cast<W<T>>(a) * static_cast<W<T>>(b)))
EAGER_FN2(Div, a / b)
EAGER_FN2(Maximum, a != a ? a : (a > b ? a : b))
EAGER_FN2(Minimum, a != a ? a : (a < b ? a : b))
EAGER_FN2(Fmax, b != b ? a : (a != a ? b : (a > b ? a : b)))
EAGER_FN2(Fmin, b != b ? a : (a != a ? b : (a < b ? a : b)))
EAGER_FN2(Copysign, copysign_(a, b))
EAGER_FN2(IMax, a > b ? a : b)
EAGER_FN2(IMin, a < b ? a : b)
EAGER_FN2(And, static_cast<T>(a& b))
EAGER_FN2(Or, static_cast<T>(a | b))
EAGER_FN2(Xor, static_cast<T>(a ^ b))
EAGER_FN2(Eq, static_cast<uint8_t>(a == b))
EAGER_FN2(Ne, static_cast<uint8_t>(a != b))
EAGER_FN2(Lt, static_cast<uint8_t>(a < b))
EAGER_FN2(Le, static_cast<uint8_t>(a <= b))
EAGER_FN2(Gt, static_cast<uint8_t>(a > b))
EAGER_FN2(Ge, static_cast<uint8_t>(a >= b))
// As C's pow, in steps that each vectorise. Whether b is an integer, and odd, is seen by rounding to integers: exact, since
// every f32 beyond 2^24 is even.
void pow32(const TileArgs& t) {
  constexpr int64_t kBlock = 64;
  constexpr double magic = 6755399441055744.0;
  const float* pa = static_cast<const float*>(t.in[0]);
  const float* pb = static_cast<const float*>(t.in[1]);
  float* out = static_cast<float*>(t.out);
  double a[kBlock], b[kBlock], y[kBlock];
  for (int64_t start = 0; start < t.n; start += kBlock) {
    const int64_t n = t.n - start < kBlock ? t.n - start : kBlock;
    for (int64_t i = 0; i < n; ++i) a[i] = pa[(start + i) * t.step[0]];
    for (int64_t i = 0; i < n; ++i) b[i] = pb[(start + i) * t.step[1]];
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = b[i] * dlog(fabs_(a[i]));
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) y[i] = dexp(y[i]);
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) {  // negative bases
      const double e = fabs_(b[i]) < 1e9 ? b[i] : 0.0, half = 0.5 * e;
      const double signed_y = (half + magic) - magic == half ? y[i] : copysign_(y[i], a[i]);
      const double fraction = a[i] < 0.0 ? kNan<double> : y[i];
      const double whole = (e + magic) - magic == e ? signed_y : fraction;
      y[i] = a[i] == -kInf<double> && (e + magic) - magic != e ? y[i] : whole;
    }
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) {  // exact and special cases
      double v = y[i];
      v = a[i] != a[i] ? a[i] : v;
      v = b[i] != b[i] ? b[i] : v;
      v = b[i] == 1.0 ? a[i] : v;
      v = b[i] == 2.0 ? a[i] * a[i] : v;
      v = b[i] == 0.0 ? 1.0 : v;
      v = a[i] == 1.0 ? 1.0 : v;
      y[i] = a[i] == -1.0 && fabs_(b[i]) == kInf<double> ? 1.0 : v;
    }
    EAGER_SIMD
    for (int64_t i = 0; i < n; ++i) out[start + i] = static_cast<float>(y[i]);
  }
}
// A bool byte is true when it is not 0.
#define EAGER_FN2_BOOL(NAME, EXPR)                                          \
  struct NAME {                                                             \
    [[gnu::always_inline]] uint8_t operator()(uint8_t x, uint8_t y) const { \
      const uint8_t a = x != 0, b = y != 0;                                 \
      return static_cast<uint8_t>(EXPR);                                    \
    }                                                                       \
  };
EAGER_FN2_BOOL(BAnd, a& b)
EAGER_FN2_BOOL(BOr, a | b)
EAGER_FN2_BOOL(BXor, a ^ b)
EAGER_FN2_BOOL(BEq, a == b)
EAGER_FN2_BOOL(BLt, a < b)
EAGER_FN2_BOOL(BLe, a <= b)
EAGER_FN2_BOOL(BGt, a > b)
EAGER_FN2_BOOL(BGe, a >= b)

// ---- ternary; the engine gives these step 1 everywhere
template <class T>
void select(const TileArgs& t) {
  const uint8_t* q = static_cast<const uint8_t*>(t.in[0]);
  const T* a = static_cast<const T*>(t.in[1]);
  const T* b = static_cast<const T*>(t.in[2]);
  T* y = static_cast<T*>(t.out);
  EAGER_SIMD
  for (int64_t i = 0; i < t.n; ++i) y[i] = q[i] ? a[i] : b[i];
}
template <class T>
[[gnu::always_inline]] inline T lower(T x, T lo) {
  return x != x ? x : lo != lo ? lo : x < lo ? lo : x;
}
template <class T>
[[gnu::always_inline]] inline T upper(T x, T hi) {
  return x != x ? x : hi != hi ? hi : x > hi ? hi : x;
}
template <class T>
void clamp(const TileArgs& t) {
  const T* x = static_cast<const T*>(t.in[0]);
  const T* lo = static_cast<const T*>(t.in[1]);
  const T* hi = static_cast<const T*>(t.in[2]);
  T* y = static_cast<T*>(t.out);
  EAGER_SIMD
  for (int64_t i = 0; i < t.n; ++i) y[i] = upper(lower(x[i], lo[i]), hi[i]);
}
template <class T>
struct Lower {
  [[gnu::always_inline]] T operator()(T x, T lo) const { return lower(x, lo); }
};
template <class T>
struct Upper {
  [[gnu::always_inline]] T operator()(T x, T hi) const { return upper(x, hi); }
};

#define BOTH(OP, FN) \
  {Op::OP, Comp::F32, u<float, FN<float>>}, { Op::OP, Comp::F64, u<double, FN<double>> }
#define BOTHP(OP) \
  {Op::OP, Comp::F32, p<float, OP<float>>}, { Op::OP, Comp::F64, p<double, OP<double>> }
#define F32(OP) \
  { Op::OP, Comp::F32, u<float, OP> }
#define INTS(KIND, OP, FN)                                                                            \
  {Op::OP, Comp::I32, KIND<int32_t, FN<int32_t>>}, {Op::OP, Comp::I64, KIND<int64_t, FN<int64_t>>}, { \
    Op::OP, Comp::U64, KIND<uint64_t, FN<uint64_t>>                                                   \
  }
#define FLOATS(KIND, OP, FN) \
  {Op::OP, Comp::F32, KIND<float, FN<float>>}, { Op::OP, Comp::F64, KIND<double, FN<double>> }
#define BOOLS(OP, FN) \
  { Op::OP, Comp::U8, b<uint8_t, FN> }
#define ALL(OP, FN)                                                                                  \
  {Op::OP, Comp::F32, FN<float>}, {Op::OP, Comp::F64, FN<double>}, {Op::OP, Comp::I32, FN<int32_t>}, \
      {Op::OP, Comp::I64, FN<int64_t>}, {                                                            \
    Op::OP, Comp::U64, FN<uint64_t>                                                                  \
  }

constexpr Entry kEntries[] = {
    BOTH(Abs, Abs),
    BOTH(Neg, Neg),
    BOTH(Sign, Sign),
    BOTH(Sqrt, Sqrt),
    BOTH(Reciprocal, Reciprocal),
    BOTH(Floor, Floor),
    BOTH(Ceil, Ceil),
    BOTH(Trunc, Trunc),
    BOTH(Round, Round),
    BOTH(Relu, Relu),
    BOTH(LeakyRelu, LeakyRelu),
    BOTH(HardSigmoid, HardSigmoid),
    BOTH(HardSwish, HardSwish),
    BOTHP(IsNan),
    BOTHP(IsInf),
    BOTHP(IsFinite),
    {Op::Rsqrt, Comp::F32, u<float, Rsqrt32>},
    {Op::Rsqrt, Comp::F64, u<double, Rsqrt64>},
    F32(Exp),
    F32(Exp2),
    F32(Expm1),
    F32(Log),
    F32(Log2),
    F32(Log10),
    F32(Log1p),
    F32(Tanh),
    F32(Sigmoid),
    F32(Erf),
    F32(Gelu),
    F32(GeluTanh),
    F32(Silu),
    F32(Elu),
    F32(Selu),
    F32(Celu),
    F32(Softplus),
    F32(Mish),
    F32(Cbrt),
    F32(Erfc),
    {Op::Cbrt, Comp::F64, u<double, Cbrt64>},
    {Op::Erfc, Comp::F64, u<double, Erfc64>},
    {Op::Sin, Comp::F32, trig<0>},
    {Op::Cos, Comp::F32, trig<1>},
    INTS(u, Abs, IAbs),
    INTS(u, Neg, INeg),
    INTS(u, Sign, ISign),
    INTS(u, BitNot, INot),
    INTS(u, Relu, IRelu),
    {Op::LogicalNot, Comp::U8, u<uint8_t, BNot<uint8_t>>},
    {Op::BitNot, Comp::U8, u<uint8_t, BNot<uint8_t>>},

    FLOATS(b, Add, Add),
    FLOATS(b, Sub, Sub),
    FLOATS(b, Mul, Mul),
    FLOATS(b, Div, Div),
    FLOATS(b, Maximum, Maximum),
    FLOATS(b, Minimum, Minimum),
    FLOATS(b, Fmax, Fmax),
    FLOATS(b, Fmin, Fmin),
    FLOATS(b, Copysign, Copysign),
    {Op::Pow, Comp::F32, pow32},
    FLOATS(c, Eq, Eq),
    FLOATS(c, Ne, Ne),
    FLOATS(c, Lt, Lt),
    FLOATS(c, Le, Le),
    FLOATS(c, Gt, Gt),
    FLOATS(c, Ge, Ge),
    INTS(b, Add, Add),
    INTS(b, Sub, Sub),
    INTS(b, Mul, Mul),
    INTS(b, Maximum, IMax),
    INTS(b, Minimum, IMin),
    INTS(b, BitAnd, And),
    INTS(b, BitOr, Or),
    INTS(b, BitXor, Xor),
    INTS(c, Eq, Eq),
    INTS(c, Ne, Ne),
    INTS(c, Lt, Lt),
    INTS(c, Le, Le),
    INTS(c, Gt, Gt),
    INTS(c, Ge, Ge),
    BOOLS(LogicalAnd, BAnd),
    BOOLS(LogicalOr, BOr),
    BOOLS(LogicalXor, BXor),
    BOOLS(BitAnd, BAnd),
    BOOLS(BitOr, BOr),
    BOOLS(BitXor, BXor),
    BOOLS(Maximum, BOr),
    BOOLS(Minimum, BAnd),
    BOOLS(Eq, BEq),
    BOOLS(Ne, BXor),
    BOOLS(Lt, BLt),
    BOOLS(Le, BLe),
    BOOLS(Gt, BGt),
    BOOLS(Ge, BGe),

    ALL(Select, select),
    {Op::Select, Comp::U8, select<uint8_t>},
    ALL(Clamp, clamp),
    FLOATS(b, ClampLo, Lower),
    FLOATS(b, ClampHi, Upper),
    INTS(b, ClampLo, Lower),
    INTS(b, ClampHi, Upper),
};

}  // namespace

TileFn EAGER_ISA(find_tile)(Op op, Comp comp) {
  for (const Entry& e : kEntries)
    if (e.op == op && e.comp == comp) return e.fn;
  return nullptr;
}

}  // namespace eager
