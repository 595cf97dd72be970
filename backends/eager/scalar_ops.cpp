// SPDX-License-Identifier: Apache-2.0
// Elementwise ops that do not vectorise: f64 through libm, complex numbers, integer division, and f32 functions too rare to
// have code of their own (libm in f64, rounded once).
#include <bit>
#include <cmath>
#include <complex>

#include "elementwise.hpp"
#include "isa/tile_loops.hpp"
#include "special.hpp"
#include "tessera/dtypes.hpp"

namespace eager {
namespace {

struct Entry {
  Op op;
  Comp comp;
  TileFn fn;
};

// F: double -> double. For f32 tiles the result is rounded once.
template <double (*F)(double)>
void wide(const TileArgs& a) {
  map1<float>(a, [](float x) { return static_cast<float>(F(x)); });
}
template <double (*F)(double)>
void f64(const TileArgs& a) {
  map1<double>(a, [](double x) { return F(x); });
}
template <double (*F)(double, double)>
void wide2(const TileArgs& a) {
  map2_scalar<float>(a, [](float x, float y) { return static_cast<float>(F(x, y)); });
}
template <double (*F)(double, double)>
void f64_2(const TileArgs& a) {
  map2_scalar<double>(a, [](double x, double y) { return F(x, y); });
}

double exp2_(double x) { return std::exp2(x); }
double sigmoid_(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double gelu_(double x) { return (0.5 * x) * std::erfc(-x * 0.70710678118654752440); }
// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2u)), without cancellation for negative x.
double gelu_tanh_(double x) { return x / (1.0 + std::exp(-1.5957691216057307118 * (x + 0.044715 * (x * x * x)))); }
double silu_(double x) { return x / (1.0 + std::exp(-x)); }
double mish_(double x) { return x * std::tanh(x > 40.0 ? x : std::log1p(std::exp(x))); }
double selu_(double x) {
  return 1.0507009873554804934193349852946 * (x > 0 ? x : 1.6732632423543772848170429916717 * std::expm1(x));
}
void elu64(const TileArgs& a) {
  map1<double>(a, [k = a.params[0]](double x) { return x > 0 ? x : k * std::expm1(x); });
}
void celu64(const TileArgs& a) {
  map1<double>(a, [k = a.params[0]](double x) { return x > 0 ? x : k * std::expm1(x / k); });
}
void softplus64(const TileArgs& a) {
  map1<double>(a, [k = a.params](double x) { return x * k[0] > k[1] ? x : std::log1p(std::exp(x * k[0])) / k[0]; });
}

// ---- floats, two operands

double fmod_(double a, double b) { return std::fmod(a, b); }
double remainder_(double a, double b) {
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r;
}
float remainder_(float a, float b) {
  float r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r;
}
// As PyTorch: from fmod, so that it agrees with remainder; a quotient that rounding left beside an integer is put on it.
template <class T>
T floor_div_(T a, T b) {
  if (b == 0) return a / b;
  const T mod = std::fmod(a, b);
  T q = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) q -= 1;
  if (q == 0) return std::copysign(T(0), a / b);
  const T low = std::floor(q);
  return q - low > T(0.5) ? low + 1 : low;
}
double pow_(double a, double b) { return b == 2.0 ? a * a : std::pow(a, b); }
double atan2_(double a, double b) { return std::atan2(a, b); }
double hypot_(double a, double b) { return std::hypot(a, b); }

void nextafter32(const TileArgs& a) {
  const auto dtype = static_cast<uint32_t>(a.params[0]);
  if (dtype == TSR_F32) return map2_scalar<float>(a, [](float x, float y) { return std::nextafterf(x, y); });
  // 16-bit floats: the neighbouring code of the same dtype.
  const bool f16 = dtype == TSR_F16;
  map2_scalar<float>(a, [f16](float x, float y) {
    if (x != x || y != y) return std::numeric_limits<float>::quiet_NaN();
    if (x == y) return y;
    uint16_t code = f16 ? tessera::float_to_half(x) : tessera::float_to_bf16(x);
    if (x == 0)
      code = static_cast<uint16_t>(y < 0 ? 0x8001 : 1);
    else if ((y > x) == (x > 0))
      ++code;
    else
      --code;
    return f16 ? tessera::half_to_float(code) : tessera::bf16_to_float(code);
  });
}

// ---- integers

template <class T>
using Bits = std::make_unsigned_t<T>;

struct IDiv {
  template <class T>
  static T run(T a, T b) {
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return static_cast<T>(0 - static_cast<Bits<T>>(a));
    return a / b;
  }
};
struct IFmod {
  template <class T>
  static T run(T a, T b) {
    if constexpr (std::is_signed_v<T>)
      if (b == -1) return 0;
    return a % b;
  }
};
struct IFloorDiv {
  template <class T>
  static T run(T a, T b) {
    T q = IDiv::run(a, b);
    if constexpr (std::is_signed_v<T>)
      if (IFmod::run(a, b) != 0 && (a < 0) != (b < 0)) --q;
    return q;
  }
};
struct IRemainder {
  template <class T>
  static T run(T a, T b) {
    T r = IFmod::run(a, b);
    if constexpr (std::is_signed_v<T>)
      if (r != 0 && (r < 0) != (b < 0)) r += b;
    return r;
  }
};
template <class T, class F>
void divide(const TileArgs& a) {
  bool zero = false;
  map2_scalar<T>(a, [&zero](T x, T y) {
    if (y == 0) {
      zero = true;
      return T(0);
    }
    return F::run(x, y);
  });
  if (zero) *a.faults |= kDivByZero;
}
template <class T>
void ipow(const TileArgs& t) {
  map2_scalar<T>(t, [](T a, T b) {
    if constexpr (std::is_signed_v<T>)
      if (b < 0) return a == 1 ? T(1) : a == -1 ? ((b & 1) ? T(-1) : T(1)) : T(0);
    Bits<T> base = static_cast<Bits<T>>(a), result = 1;
    for (auto e = static_cast<Bits<T>>(b); e != 0; e >>= 1) {
      if (e & 1) result *= base;
      base *= base;
    }
    return static_cast<T>(result);
  });
}
// The shift count as the operand's own unsigned type reads it; params[3]: its width.
template <class T>
uint64_t shift_count(T b, int width) {
  return static_cast<uint64_t>(b) & (~uint64_t{0} >> (64 - width));
}
template <class T>
void shl(const TileArgs& t) {
  const int width = static_cast<int>(t.params[3]);
  map2_scalar<T>(t, [width](T a, T b) {
    const uint64_t n = shift_count(b, width);
    return n >= static_cast<uint64_t>(width) ? T(0) : static_cast<T>(static_cast<Bits<T>>(a) << n);
  });
}
template <class T>
void shr(const TileArgs& t) {
  const int width = static_cast<int>(t.params[3]);
  map2_scalar<T>(t, [width](T a, T b) {
    const uint64_t n = shift_count(b, width);
    if (n >= static_cast<uint64_t>(width)) return a < 0 ? static_cast<T>(-1) : T(0);
    return static_cast<T>(a >> n);
  });
}
template <class T>
void count_bits(const TileArgs& t) {
  const int width = static_cast<int>(t.params[3]);
  map1<T>(t, [width](T x) { return static_cast<T>(std::popcount(static_cast<uint64_t>(x) & (~uint64_t{0} >> (64 - width)))); });
}

// ---- complex

// Functions of c64 go through c128 and round once.
template <class C>
std::complex<double> std_of(C z) {
  return {z.re, z.im};
}
template <class C>
C of_std(std::complex<double> z) {
  using R = decltype(C::re);
  return C{static_cast<R>(z.real()), static_cast<R>(z.imag())};
}
#define EAGER_CX1(NAME, EXPR)    \
  template <class C>             \
  void NAME(const TileArgs& a) { \
    map1<C>(a, [](C v) {         \
      const auto z = std_of(v);  \
      return of_std<C>(EXPR);    \
    });                          \
  }
EAGER_CX1(cexp, std::exp(z))
EAGER_CX1(clog, std::log(z))
EAGER_CX1(csqrt, std::sqrt(z))
EAGER_CX1(csin, std::sin(z))
EAGER_CX1(ccos, std::cos(z))
EAGER_CX1(ctanh, std::tanh(z))
EAGER_CX1(cneg, -z)
EAGER_CX1(cconj, std::conj(z))

// Smith 1962: no overflow of the squared modulus. c64 in f64.
template <class C>
C cdiv(C x, C y) {
  using R = decltype(C::re);
  const double ar = x.re, ai = x.im, br = y.re, bi = y.im;
  if (br == 0 && bi == 0) return {static_cast<R>(ar / std::fabs(br)), static_cast<R>(ai / std::fabs(br))};
  if (std::fabs(br) >= std::fabs(bi)) {
    const double r = bi / br, d = br + bi * r;
    return {static_cast<R>((ar + ai * r) / d), static_cast<R>((ai - ar * r) / d)};
  }
  const double r = br / bi, d = br * r + bi;
  return {static_cast<R>((ar * r + ai) / d), static_cast<R>((ai * r - ar) / d)};
}
template <class C>
void crecip(const TileArgs& a) {
  map1<C>(a, [](C z) { return cdiv(C{1, 0}, z); });
}
template <class C>
void cabs(const TileArgs& a) {
  using R = decltype(C::re);
  map1<C, R>(a, [](C z) { return static_cast<R>(std::hypot(static_cast<double>(z.re), static_cast<double>(z.im))); });
}
template <class C>
void creal(const TileArgs& a) {
  map1<C, decltype(C::re)>(a, [](C z) { return z.re; });
}
template <class C>
void cimag(const TileArgs& a) {
  map1<C, decltype(C::re)>(a, [](C z) { return z.im; });
}
struct CAdd {
  template <class C>
  static C run(C a, C b) {
    return {a.re + b.re, a.im + b.im};
  }
};
struct CSub {
  template <class C>
  static C run(C a, C b) {
    return {a.re - b.re, a.im - b.im};
  }
};
struct CMul {
  template <class C>
  static C run(C a, C b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};
struct CDiv {
  template <class C>
  static C run(C a, C b) {
    return cdiv(a, b);
  }
};
template <class C, class F>
void cx2(const TileArgs& a) {
  map2_scalar<C>(a, [](C x, C y) { return F::run(x, y); });
}
template <class C, bool Equal>
void ceq(const TileArgs& a) {
  map2_scalar<C, uint8_t>(a, [](C x, C y) { return static_cast<uint8_t>((x.re == y.re && x.im == y.im) == Equal); });
}
template <class R>
void make_complex(const TileArgs& a) {
  map2_scalar<R, Cplx<R>>(a, [](R re, R im) { return Cplx<R>{re, im}; });
}
template <class T>
void select_any(const TileArgs& t) {
  const auto* q = static_cast<const uint8_t*>(t.in[0]);
  const T* a = static_cast<const T*>(t.in[1]);
  const T* b = static_cast<const T*>(t.in[2]);
  for (int64_t i = 0; i < t.n; ++i) static_cast<T*>(t.out)[i] = q[i] ? a[i] : b[i];
}

#define WIDE(OP, FN) \
  {Op::OP, Comp::F32, wide<FN>}, { Op::OP, Comp::F64, f64<FN> }
#define F64(OP, FN) \
  { Op::OP, Comp::F64, f64<FN> }
#define INTS(OP, FN) \
  {Op::OP, Comp::I32, FN<int32_t>}, {Op::OP, Comp::I64, FN<int64_t>}, { Op::OP, Comp::U64, FN<uint64_t> }
#define DIVS(OP, FN)                                                                    \
  {Op::OP, Comp::I32, divide<int32_t, FN>}, {Op::OP, Comp::I64, divide<int64_t, FN>}, { \
    Op::OP, Comp::U64, divide<uint64_t, FN>                                             \
  }
#define CX(OP, FN) \
  {Op::OP, Comp::C64, FN<C64>}, { Op::OP, Comp::C128, FN<C128> }
#define CX2(OP, FN) \
  {Op::OP, Comp::C64, cx2<C64, FN>}, { Op::OP, Comp::C128, cx2<C128, FN> }

constexpr Entry kEntries[] = {
    WIDE(Tan, std::tan),
    WIDE(Asin, std::asin),
    WIDE(Acos, std::acos),
    WIDE(Atan, std::atan),
    WIDE(Sinh, std::sinh),
    WIDE(Cosh, std::cosh),
    WIDE(Asinh, std::asinh),
    WIDE(Acosh, std::acosh),
    WIDE(Atanh, std::atanh),
    WIDE(Erfinv, erfinv),
    WIDE(Lgamma, log_gamma),
    WIDE(Digamma, digamma),
    F64(Exp, std::exp),
    F64(Exp2, exp2_),
    F64(Expm1, std::expm1),
    F64(Log, std::log),
    F64(Log2, std::log2),
    F64(Log10, std::log10),
    F64(Log1p, std::log1p),
    F64(Sin, std::sin),
    F64(Cos, std::cos),
    F64(Tanh, std::tanh),
    F64(Erf, std::erf),
    F64(Sigmoid, sigmoid_),
    F64(Gelu, gelu_),
    F64(GeluTanh, gelu_tanh_),
    F64(Silu, silu_),
    F64(Mish, mish_),
    F64(Selu, selu_),
    {Op::Elu, Comp::F64, elu64},
    {Op::Celu, Comp::F64, celu64},
    {Op::Softplus, Comp::F64, softplus64},
    {Op::Pow, Comp::F64, f64_2<pow_>},
    {Op::Atan2, Comp::F32, wide2<atan2_>},
    {Op::Atan2, Comp::F64, f64_2<atan2_>},
    {Op::Hypot, Comp::F32, wide2<hypot_>},
    {Op::Hypot, Comp::F64, f64_2<hypot_>},
    {Op::Fmod, Comp::F32, wide2<fmod_>},
    {Op::Fmod, Comp::F64, f64_2<fmod_>},
    {Op::Remainder, Comp::F32,
     [](const TileArgs& a) { map2_scalar<float>(a, [](float x, float y) { return remainder_(x, y); }); }},
    {Op::Remainder, Comp::F64, f64_2<remainder_>},
    {Op::FloorDiv, Comp::F32, [](const TileArgs& a) { map2_scalar<float>(a, floor_div_<float>); }},
    {Op::FloorDiv, Comp::F64, f64_2<floor_div_<double>>},
    {Op::Nextafter, Comp::F32, nextafter32},
    {Op::Nextafter, Comp::F64,
     [](const TileArgs& a) { map2_scalar<double>(a, [](double x, double y) { return std::nextafter(x, y); }); }},
    DIVS(Div, IDiv),
    DIVS(FloorDiv, IFloorDiv),
    DIVS(Remainder, IRemainder),
    DIVS(Fmod, IFmod),
    INTS(Pow, ipow),
    INTS(Shl, shl),
    INTS(Shr, shr),
    INTS(Popcount, count_bits),
    CX(Abs, cabs),
    CX(Neg, cneg),
    CX(Exp, cexp),
    CX(Log, clog),
    CX(Sqrt, csqrt),
    CX(Reciprocal, crecip),
    CX(Sin, csin),
    CX(Cos, ccos),
    CX(Tanh, ctanh),
    CX(Conj, cconj),
    CX(Real, creal),
    CX(Imag, cimag),
    CX2(Add, CAdd),
    CX2(Sub, CSub),
    CX2(Mul, CMul),
    CX2(Div, CDiv),
    {Op::Eq, Comp::C64, ceq<C64, true>},
    {Op::Eq, Comp::C128, ceq<C128, true>},
    {Op::Ne, Comp::C64, ceq<C64, false>},
    {Op::Ne, Comp::C128, ceq<C128, false>},
    {Op::MakeComplex, Comp::F32, make_complex<float>},
    {Op::MakeComplex, Comp::F64, make_complex<double>},
    {Op::Select, Comp::C64, select_any<C64>},
    {Op::Select, Comp::C128, select_any<C128>},
};

}  // namespace

TileFn find_scalar_tile(Op op, Comp comp) {
  for (const Entry& e : kEntries)
    if (e.op == op && e.comp == comp) return e.fn;
  return nullptr;
}

}  // namespace eager
