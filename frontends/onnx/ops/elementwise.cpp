// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparisons, logic, casts.
#include <array>
#include <cmath>

#include "../op.hpp"
#include "cast.hpp"

namespace tessera::onnx {
namespace {

template <const char* Name>
void unary(Op& op) {
  op.out(op.in().call(Name));
}

// Before opset 7, operands broadcast only when `broadcast` says so: the second from `axis` on.
std::array<V, 2> operands(Op& op) {
  V a = op.in(0), c = op.in(1);
  if (op.version < 7 && op.flag("broadcast") && c.rank() < a.rank()) {
    const int64_t axis = op.has_attr("axis") ? op.axis(op.i("axis"), a.rank()) : a.rank() - c.rank();
    const int64_t trailing = a.rank() - axis - c.rank();
    op.expect(trailing >= 0, "the second operand does not fit at axis " + std::to_string(axis));
    c = op.b.expand(c, axes_from(c.rank(), c.rank() + trailing));
  }
  return {a, c};
}

template <const char* Name>
void binary(Op& op) {
  const auto [a, c] = operands(op);
  op.out(a.call(Name, c));
}

template <const char* Name>
void variadic(Op& op) {
  V r = op.in(0);
  for (size_t i = 1; i < op.num_inputs(); ++i) r = r.call(Name, op.in(i));
  op.out(r);
}

void mean(Op& op) {
  V r = op.in(0);
  for (size_t i = 1; i < op.num_inputs(); ++i) r = r + op.in(i);
  op.out(r / static_cast<double>(op.num_inputs()));
}

void mod(Op& op) { op.out(op.in(0).call(op.flag("fmod") ? "fmod" : "remainder", op.in(1))); }

// Whether every element of a constant is a value of `dtype`.
bool all_exact(Op& op, const V& v, tsr_dtype dtype) {
  const auto values = op.b.reals(v);
  if (!values) return false;
  for (const double x : *values) {
    char bytes[16];
    store_from(dtype, bytes, 0, x);
    if (load_as<double>(dtype, bytes, 0) != x) return false;
  }
  return true;
}

// An integer to a power that is a float: the exact power, truncated and saturated. f64 has every result of up to 53 bits; a
// longer one is the integer power.
V integer_to_float(Op& op, const V& a, const V& e) {
  Build& b = op.b;
  const V y = b.cast(e, TSR_F64), r = b.cast(a, TSR_F64).call("pow", y);
  const V rounded = b.cast(r, a.dtype());
  if (dtype_bits(a.dtype()) < 53) return rounded;
  const double bound = std::ldexp(1.0, is_signed_int(a.dtype()) ? 63 : 64);
  const V fits = either(y == 1.0, r.call("abs") < bound), counts = both(y == y.call("floor"), b.scalar(-1, TSR_F64) < y);
  const V whole = both(both(counts, y < 65.0), fits);  // of a magnitude of 2 and more, no higher power fits
  return select(whole, a.call("pow", b.cast(y, a.dtype())), rounded);
}

// Integers to integer powers modulo 2^n.
V integer_to_integer(Op& op, const V& a, const V& e) {
  Build& b = op.b;
  const tsr_dtype base = a.dtype(), exponent = e.dtype();
  // Of two dtypes, the one that holds both; where there is none, one of them is u64 or shorter and bare, and 64 bits do.
  tsr_dtype t = promote(base, exponent);
  if (!is_int(t)) t = base == TSR_U64 ? TSR_U64 : TSR_I64;
  V n = b.cast(e, t);
  if (exponent == TSR_U64 && t == TSR_I64) {
    // From 2^63 on: the powers of odd numbers repeat after 2^62 at most, those of even ones are 0 from 64 on.
    const V high = b.op("bitwise_or", {n.call("bitwise_and", b.integer((int64_t{1} << 62) - 1)), b.integer(int64_t{1} << 62)});
    n = select(n < 0.0, high, n);
  }
  V r = b.cast(a, t).call("pow", n);
  if (t == TSR_U64 && is_signed_int(exponent))  // a negative exponent: 1 of 1, and 0
    r = select(e < 0.0, b.cast(a == 1.0, t), r);
  return b.cast(r, base);
}

// The result has the dtype of the base. Nothing is rounded to a dtype that does not hold it: neither an integer base, nor an
// exponent.
void pow(Op& op) {
  Build& b = op.b;
  const auto [a, e] = operands(op);
  if (a.dtype() == e.dtype()) return op.out(a.call("pow", e));
  if (is_int(a.dtype())) return op.out(is_int(e.dtype()) ? integer_to_integer(op, a, e) : integer_to_float(op, a, e));
  tsr_dtype t = a.dtype();
  if (!is_int(e.dtype()))
    t = promote(a.dtype(), e.dtype());
  else if (t != TSR_F64 && dtype_bits(e.dtype()) > 8 && !all_exact(op, e, t))
    t = dtype_bits(e.dtype()) <= 16 ? TSR_F32 : TSR_F64;
  op.out(b.cast(b.cast(a, t).call("pow", b.cast(e, t)), a.dtype()));
}

void bit_shift(Op& op) {
  const auto direction = op.s("direction");
  op.expect(direction == "LEFT" || direction == "RIGHT", "attribute 'direction' is neither LEFT nor RIGHT");
  op.out(op.in(0).call(direction == "LEFT" ? "shift_left" : "shift_right", op.in(1)));
}

void clip(Op& op) {
  const V x = op.in(0);
  if (op.version >= 11) return op.out(op.b.op("clamp", {x, op.opt(1), op.opt(2)}));
  V lo, hi;
  if (op.has_attr("min")) lo = op.b.scalar(op.f("min"), x.dtype());
  if (op.has_attr("max")) hi = op.b.scalar(op.f("max"), x.dtype());
  op.out(op.b.op("clamp", {x, lo, hi}));
}

void is_inf(Op& op) {
  const V x = op.in();
  const bool below = op.flag("detect_negative", true), above = op.flag("detect_positive", true);
  const V inf = x.call("is_inf");
  if (below && above) return op.out(inf);
  if (!below && !above) return op.out(op.b.full(0, TSR_BOOL, x.sizes()));
  op.out(both(inf, above ? x > 0.0 : x < 0.0));
}

// float8 without saturation: what overflows is NaN (or infinite in e5m2), where `cast` does what PyTorch does.
V cast_f8(Op& op, const V& x, tsr_dtype to, bool saturate) {
  Build& b = op.b;
  if (!is_float(x.dtype())) return b.cast(x, to);
  const double max = to == TSR_F8E4M3FN ? 448 : to == TSR_F8E4M3FNUZ ? 240 : 57344;
  if (x.dtype() == to) return x;
  const V wide = b.cast(x, x.dtype() == TSR_F64 ? TSR_F64 : TSR_F32);
  // Half a unit in the last place above the greatest value, a tie rounds to the even neighbour: up and out of range.
  const double limit = to == TSR_F8E4M3FN ? 464 : to == TSR_F8E4M3FNUZ ? 248 : 61440;
  const V magnitude = wide.call("abs");
  const V over = to == TSR_F8E4M3FN ? magnitude > limit : magnitude >= limit;
  V fits = b.cast(b.op("clamp", {wide, b.scalar(-max, wide.dtype()), b.scalar(max, wide.dtype())}), to);
  if (saturate) return fits;
  if (to == TSR_F8E5M2) {
    const V inf = b.cast(select(wide < 0.0, -HUGE_VAL, b.scalar(HUGE_VAL, wide.dtype())), to);
    return select(over, inf, fits);
  }
  return select(over, b.cast(b.scalar(NAN, TSR_F32), to), fits);
}

// float8e8m0 holds powers of two only: the exponent of the f32, rounded as asked.
V cast_e8m0(Op& op, const V& x, std::string_view mode, bool saturate) {
  Build& b = op.b;
  const V f = b.cast(x, TSR_F32);
  const V bits = f.call("bitcast", {sdk::attr_dtype("dtype", TSR_U32)});
  const auto u = [&](double v) { return b.scalar(v, TSR_U32); };
  const V exponent = bits.call("shift_right", u(23)).call("bitwise_and", u(255));
  const V mantissa = bits.call("bitwise_and", u(0x7fffff));
  // Values below the least normal f32 are less than 2^-126: 2^-127 has the exponent 0 and the mantissa 2^22.
  V up;
  if (mode == "up")
    up = select(exponent == 0.0, mantissa > u(0x400000), mantissa > u(0));
  else if (mode == "down")
    up = b.full(0, TSR_BOOL, x.sizes());
  else
    up = select(exponent == 0.0, mantissa > u(0x600000 - 1), mantissa >= u(0x400000));
  V e = exponent + b.cast(up, TSR_U32);
  const V nan = f.call("is_nan");
  const V high = both(either(f.call("is_inf"), e > u(254)), negated(nan));
  e = select(nan, u(255), select(high, u(saturate ? 254 : 255), e));
  if (!saturate) e = select(f == 0.0, u(255), e);
  return b.cast(e, TSR_U8).call("bitcast", {sdk::attr_dtype("dtype", TSR_F8E8M0)});
}

}  // namespace

V cast_to(Op& op, const V& x, tsr_dtype to) {
  if (x.dtype() == to) return x;
  const bool saturate = op.flag("saturate", true);
  if (to == TSR_F8E8M0 && is_float(x.dtype())) return cast_e8m0(op, x, op.s("round_mode", "up"), saturate);
  if (is_f8(to) && to != TSR_F8E8M0) return cast_f8(op, x, to, saturate);
  if (is_int(to) && is_packed(to) && is_float(x.dtype())) return op.b.cast(op.b.cast(x, TSR_I32), to);
  if (to == TSR_F4E2M1 && is_float(x.dtype()))
    return select(x.call("is_nan"), op.b.cast(op.b.scalar(-0.0, TSR_F32), to), op.b.cast(x, to));
  return op.b.cast(x, to);
}

namespace {

void cast(Op& op) {
  tsr_dtype to;
  if (op.version < 6) {  // a name
    static constexpr std::pair<std::string_view, tsr_dtype> kNames[] = {
        {"FLOAT", TSR_F32}, {"DOUBLE", TSR_F64}, {"FLOAT16", TSR_F16}, {"INT32", TSR_I32},
        {"INT64", TSR_I64}, {"BOOL", TSR_BOOL},  {"INT8", TSR_I8},     {"UINT8", TSR_U8},
        {"INT16", TSR_I16}, {"UINT16", TSR_U16}, {"UINT32", TSR_U32},  {"UINT64", TSR_U64}};
    to = TSR_DTYPE_INVALID;
    for (const auto& [name, dtype] : kNames)
      if (op.s("to") == name) to = dtype;
  } else {
    to = dtype_of(static_cast<DataType>(op.i("to")));
  }
  if (to == TSR_DTYPE_INVALID)
    op.fail(kType, "a cast to " + (op.version < 6 ? std::string(op.s("to")) : type_name(static_cast<DataType>(op.i("to")))) +
                       ", which tensors here do not have");
  op.out(cast_to(op, op.in(), to));
}

void cast_like(Op& op) { op.out(cast_to(op, op.in(0), op.in(1).dtype())); }

void bit_cast(Op& op) {
  const tsr_dtype to = dtype_of(static_cast<DataType>(op.i("to")));
  if (to == TSR_DTYPE_INVALID) op.fail(kType, "a cast to " + type_name(static_cast<DataType>(op.i("to"))));
  const V x = op.in();
  op.out(x.dtype() == to ? x : x.call("bitcast", {sdk::attr_dtype("dtype", to)}));
}

void identity(Op& op) { op.out(op.in()); }

void where(Op& op) { op.out(select(op.in(0), op.in(1), op.in(2))); }

#define NAME(n) constexpr char k_##n[] = #n
NAME(abs);
NAME(neg);
NAME(sign);
NAME(exp);
NAME(log);
NAME(sqrt);
NAME(reciprocal);
NAME(sin);
NAME(cos);
NAME(tan);
NAME(asin);
NAME(acos);
NAME(atan);
NAME(sinh);
NAME(cosh);
NAME(tanh);
NAME(asinh);
NAME(acosh);
NAME(atanh);
NAME(erf);
NAME(floor);
NAME(ceil);
NAME(round);
NAME(is_nan);
NAME(logical_not);
NAME(bitwise_not);
NAME(add);
NAME(sub);
NAME(mul);
NAME(div);
NAME(bitwise_and);
NAME(bitwise_or);
NAME(bitwise_xor);
NAME(logical_and);
NAME(logical_or);
NAME(logical_xor);
NAME(eq);
NAME(lt);
NAME(le);
NAME(gt);
NAME(ge);
NAME(maximum);
NAME(minimum);
#undef NAME

}  // namespace

std::span<const Record> elementwise_records() {
  static constexpr Record records[] = {
      {"", "Abs", unary<k_abs>},
      {"", "Neg", unary<k_neg>},
      {"", "Sign", unary<k_sign>},
      {"", "Exp", unary<k_exp>},
      {"", "Log", unary<k_log>},
      {"", "Sqrt", unary<k_sqrt>},
      {"", "Reciprocal", unary<k_reciprocal>},
      {"", "Sin", unary<k_sin>},
      {"", "Cos", unary<k_cos>},
      {"", "Tan", unary<k_tan>},
      {"", "Asin", unary<k_asin>},
      {"", "Acos", unary<k_acos>},
      {"", "Atan", unary<k_atan>},
      {"", "Sinh", unary<k_sinh>},
      {"", "Cosh", unary<k_cosh>},
      {"", "Tanh", unary<k_tanh>},
      {"", "Asinh", unary<k_asinh>},
      {"", "Acosh", unary<k_acosh>},
      {"", "Atanh", unary<k_atanh>},
      {"", "Erf", unary<k_erf>},
      {"", "Floor", unary<k_floor>},
      {"", "Ceil", unary<k_ceil>},
      {"", "Round", unary<k_round>},
      {"", "IsNaN", unary<k_is_nan>},
      {"", "IsInf", is_inf},
      {"", "Not", unary<k_logical_not>},
      {"", "BitwiseNot", unary<k_bitwise_not>},
      {"", "Add", binary<k_add>},
      {"", "Sub", binary<k_sub>},
      {"", "Mul", binary<k_mul>},
      {"", "Div", binary<k_div>},
      {"", "Mod", mod},
      {"", "Pow", pow},
      {"", "BitShift", bit_shift},
      {"", "BitwiseAnd", binary<k_bitwise_and>},
      {"", "BitwiseOr", binary<k_bitwise_or>},
      {"", "BitwiseXor", binary<k_bitwise_xor>},
      {"", "And", binary<k_logical_and>},
      {"", "Or", binary<k_logical_or>},
      {"", "Xor", binary<k_logical_xor>},
      {"", "Equal", binary<k_eq>},
      {"", "Less", binary<k_lt>},
      {"", "LessOrEqual", binary<k_le>},
      {"", "Greater", binary<k_gt>},
      {"", "GreaterOrEqual", binary<k_ge>},
      {"", "Max", variadic<k_maximum>},
      {"", "Min", variadic<k_minimum>},
      {"", "Sum", variadic<k_add>},
      {"", "Mean", mean},
      {"", "Clip", clip},
      {"", "Where", where},
      {"", "Cast", cast},
      {"", "CastLike", cast_like},
      {"", "BitCast", bit_cast},
      {"", "Identity", identity},
  };
  return records;
}

}  // namespace tessera::onnx
