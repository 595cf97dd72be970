// SPDX-License-Identifier: Apache-2.0
// The numbers of elementwise ops and casts in the kernel IR: what docs/ir.md says of each, op by op.
#include <algorithm>
#include <array>
#include <limits>

#include "node_table.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::kit {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

enum : uint8_t { kFloats = 1, kInts = 2, kBools = 4, kReals = kFloats | kInts, kAll = kReals | kBools };
constexpr bool kQuick = true;  // a few instructions: computed again rather than kept
struct Known {
  std::string_view op;
  uint8_t classes, operands;
  bool quick = false;
};
constexpr Known kKnown[] = {
    {"abs", kReals, 1, kQuick},
    {"neg", kReals, 1, kQuick},
    {"sign", kReals, 1, kQuick},
    {"sqrt", kFloats, 1, kQuick},
    {"rsqrt", kFloats, 1},
    {"reciprocal", kFloats, 1, kQuick},
    {"exp", kFloats, 1},
    {"exp_of_less", kFloats, 1},
    {"exp2", kFloats, 1},
    {"expm1", kFloats, 1},
    {"log", kFloats, 1},
    {"log2", kFloats, 1},
    {"log10", kFloats, 1},
    {"log1p", kFloats, 1},
    {"sin", kFloats, 1},
    {"cos", kFloats, 1},
    {"tan", kFloats, 1},
    {"asin", kFloats, 1},
    {"acos", kFloats, 1},
    {"atan", kFloats, 1},
    {"sinh", kFloats, 1},
    {"cosh", kFloats, 1},
    {"tanh", kFloats, 1},
    {"asinh", kFloats, 1},
    {"acosh", kFloats, 1},
    {"atanh", kFloats, 1},
    {"erf", kFloats, 1},
    {"erfc", kFloats, 1},
    {"cbrt", kFloats, 1},
    {"sigmoid", kFloats, 1},
    {"floor", kFloats, 1, kQuick},
    {"ceil", kFloats, 1, kQuick},
    {"round", kFloats, 1, kQuick},
    {"trunc", kFloats, 1, kQuick},
    {"is_nan", kFloats, 1, kQuick},
    {"is_inf", kFloats, 1, kQuick},
    {"is_finite", kFloats, 1, kQuick},
    {"logical_not", kBools, 1},
    {"bitwise_not", kInts | kBools, 1},
    {"popcount", kInts, 1},
    {"relu", kReals, 1, kQuick},
    {"leaky_relu", kFloats, 1, kQuick},
    {"elu", kFloats, 1},
    {"selu", kFloats, 1},
    {"celu", kFloats, 1},
    {"gelu", kFloats, 1},
    {"silu", kFloats, 1},
    {"mish", kFloats, 1},
    {"softplus", kFloats, 1},
    {"hardsigmoid", kFloats, 1, kQuick},
    {"hardswish", kFloats, 1, kQuick},
    {"add", kReals, 2, kQuick},
    {"sub", kReals, 2, kQuick},
    {"mul", kReals, 2, kQuick},
    {"div", kReals, 2, kQuick},
    {"floor_div", kReals, 2},
    {"remainder", kReals, 2},
    {"fmod", kReals, 2},
    {"pow", kFloats, 2},
    {"atan2", kFloats, 2},
    {"hypot", kFloats, 2},
    {"copysign", kFloats, 2, kQuick},
    {"maximum", kAll, 2, kQuick},
    {"minimum", kAll, 2, kQuick},
    {"fmax", kFloats, 2, kQuick},
    {"fmin", kFloats, 2, kQuick},
    {"bitwise_and", kInts | kBools, 2},
    {"bitwise_or", kInts | kBools, 2},
    {"bitwise_xor", kInts | kBools, 2},
    {"shift_left", kInts, 2},
    {"shift_right", kInts, 2},
    {"logical_and", kBools, 2},
    {"logical_or", kBools, 2},
    {"logical_xor", kBools, 2},
    {"eq", kAll, 2, kQuick},
    {"ne", kAll, 2, kQuick},
    {"lt", kAll, 2, kQuick},
    {"le", kAll, 2, kQuick},
    {"gt", kAll, 2, kQuick},
    {"ge", kAll, 2, kQuick},
    {"select", kAll, 3, kQuick},
    {"clamp_low", kReals, 2, kQuick},
    {"clamp_high", kReals, 2, kQuick},
    {"divide_many", kFloats, 2, kQuick},
};

Ex op1(Op op, Ex x) { return {x.b, x.b->unary(op, x.v)}; }
Ex op2(Op op, Ex x, Ex y) { return {x.b, x.b->binary(op, x.v, y.v)}; }
Ex is_nan(Ex x) { return ne(x, x); }

Ex copysign(Ex m, Ex s) {
  const bool wide = m.type() == Type::F64;
  const Type u = wide ? Type::U64 : Type::U32;
  const auto top = static_cast<int64_t>(wide ? 0x8000000000000000ull : 0x80000000ull);
  const Ex a = m.as(u), b = s.as(u);
  return ((a & a.lit(~top)) | (b & b.lit(top))).as(m.type());
}
// bool -> 0 or 1
Ex number_of(Ex c, Type t) { return c.to(t); }

// Integer division that no operand can make trap. The quotient and remainder truncate.
struct Division {
  Ex quotient, remainder;
};
Division divide(Ex a, Ex b) {
  const Ex zero = a.lit(int64_t{0}), one = a.lit(int64_t{1});
  b.b->check(ne(b, zero).v, kFaultDivision);
  if (is_unsigned(a.type())) {
    const Ex d = select(eq(b, zero), one, b);
    return {op2(Op::Div, a, d), op2(Op::Rem, a, d)};
  }
  const Ex minus = eq(b, a.lit(int64_t{-1})), d = select(eq(b, zero) | minus, one, b);
  return {select(minus, -a, op2(Op::Div, a, d)), select(minus, zero, op2(Op::Rem, a, d))};
}

Computed on_bool(std::string_view op, std::vector<Ex>& a) {
  if (op == "select") return {select(a[0], a[1], a[2]), true};
  const Ex x = a[0];
  if (op == "logical_not" || op == "bitwise_not") return {!x, true};
  const Ex y = a[1];
  if (op == "logical_and" || op == "bitwise_and" || op == "minimum") return {x & y, true};
  if (op == "logical_or" || op == "bitwise_or" || op == "maximum") return {x | y, true};
  if (op == "logical_xor" || op == "bitwise_xor" || op == "ne") return {x ^ y, true};
  if (op == "eq") return {!(x ^ y), true};
  if (op == "lt") return {(!x) & y, true};
  if (op == "le") return {(!x) | y, true};
  if (op == "gt") return {x & (!y), true};
  return {x | (!y), true};  // ge
}

Computed on_int(std::string_view op, uint32_t dtype, std::vector<Ex>& a) {
  const Ex x = a[0];
  const Ex zero = x.lit(int64_t{0});
  const bool sign = is_signed(x.type());
  if (op == "abs") return {abs(x), false};
  if (op == "neg") return {-x, false};
  if (op == "sign") {
    const Ex up = number_of(x > zero, x.type());
    return {sign ? up - number_of(x < zero, x.type()) : up, true};
  }
  if (op == "bitwise_not") return {!x, false};
  if (op == "relu") return {sign ? select(x > zero, x, zero) : x, true};
  if (op == "popcount") {
    // Of the operand's own bits: a narrow signed value is sign extended here.
    const int bits = dtype_bits(dtype);
    const Ex own = bits < 32 ? x & x.lit((int64_t{1} << bits) - 1) : x;
    return {op1(Op::Popcount, own), false};
  }
  const Ex y = a[1];
  if (op == "add") return {x + y, false};
  if (op == "sub") return {x - y, false};
  if (op == "mul") return {x * y, false};
  if (op == "div") return {divide(x, y).quotient, false};
  if (op == "fmod") return {divide(x, y).remainder, true};
  if (op == "floor_div" || op == "remainder") {
    const Division d = divide(x, y);
    if (!sign) return {op == "floor_div" ? d.quotient : d.remainder, false};
    const Ex down = ne(d.remainder, zero) & ((x < zero) ^ (y < zero));
    if (op == "floor_div") return {select(down, d.quotient - x.lit(int64_t{1}), d.quotient), false};
    return {select(ne(d.remainder, zero) & ((d.remainder < zero) ^ (y < zero)), d.remainder + y, d.remainder), false};
  }
  if (op == "maximum" || op == "clamp_low") return {select(x > y, x, y), true};
  if (op == "minimum" || op == "clamp_high") return {select(x < y, x, y), true};
  if (op == "bitwise_and") return {x & y, false};
  if (op == "bitwise_or") return {x | y, false};
  if (op == "bitwise_xor") return {x ^ y, false};
  // The count is read as unsigned, of the operand's width.
  const int bits = dtype_bits(dtype);
  const Ex count = bits < 32 ? y & y.lit((int64_t{1} << bits) - 1) : y;
  return {op2(op == "shift_left" ? Op::Shl : Op::Shr, x, count), false};
}

Computed on_float(std::string_view op, std::vector<Ex>& a, const std::vector<double>& p) {
  const Ex x = a[0];
  const bool wide = x.type() == Type::F64;
  const auto named = [&](std::string_view f) { return std::string(f) + (wide ? "_f64" : "_f32"); };
  const auto param = [&](size_t i) { return Ex{x.b, x.b->constant(Type::F64, p[i])}; };
  if (op == "abs") return {abs(x), true};
  if (op == "neg") return {-x, true};
  if (op == "sign") return {number_of(x > 0.0, x.type()) - number_of(x < 0.0, x.type()), true};
  if (op == "sqrt") return {sqrt(x), false};
  if (op == "reciprocal") return {1.0 / x, false};
  if (op == "floor") return {op1(Op::Floor, x), false};
  if (op == "ceil") return {op1(Op::Ceil, x), false};
  if (op == "trunc") return {op1(Op::Trunc, x), false};
  if (op == "round") return {op1(Op::Round, x), false};
  if (op == "is_nan") return {is_nan(x), true};
  if (op == "is_inf") return {eq(abs(x), kInf), true};
  if (op == "is_finite") return {abs(x) < kInf, true};
  if (op == "relu") return {select(x > 0.0, x, select(is_nan(x), x, 0.0)), true};
  if (op == "leaky_relu") return {select(x > 0.0, x, x * p[0]), false};
  if (op == "hardsigmoid") {
    const Ex y = x * p[0] + p[1], low = select(y < 0.0, 0.0, y);  // NaN stays
    return {select(low > 1.0, 1.0, low), false};
  }
  if (op == "hardswish") {
    const Ex y = x + 3.0, low = select(y < 0.0, 0.0, y);
    return {x * select(low > 6.0, 6.0, low) / 6.0, false};
  }
  if (op == "gelu") return {call(named(p[0] != 0 ? "gelu_tanh" : "gelu"), x), false};
  if (op == "elu" || op == "celu") return {call(named(op), x, param(0)), false};
  if (op == "softplus") return {{x.b, x.b->call(named(op), {x.v, param(0).v, param(1).v})}, false};
  // Of softmax: of no more than 0, or NaN.
  if (op == "exp_of_less") return {call(x.type() == Type::F32 ? "exp_to_43_f32" : "exp_f64", x), false};
  if (op == "mul" && a.size() == 2) return {x * a[1], false};
  if (a.size() == 1) return {call(named(op), x), false};
  const Ex y = a[1];
  if (op == "add") return {x + y, false};
  if (op == "sub") return {x - y, false};
  if (op == "div") return {x / y, false};
  // Of softmax: many values by one, of 1 and more, whose reciprocal is computed once, as a sum of two.
  if (op == "divide_many") {
    const Ex r = 1.0 / y, low = fma(-r, y, r.lit(1.0)) * r;
    return {fma(x, r, x * low), false};
  }
  if (op == "maximum") return {select(is_nan(x), x, select(x > y, x, y)), true};
  if (op == "minimum") return {select(is_nan(x), x, select(x < y, x, y)), true};
  if (op == "fmax") return {select(is_nan(y), x, select(is_nan(x), y, select(x > y, x, y))), true};
  if (op == "fmin") return {select(is_nan(y), x, select(is_nan(x), y, select(x < y, x, y))), true};
  if (op == "clamp_low") return {select(is_nan(x), x, select(is_nan(y), y, select(x < y, y, x))), true};
  if (op == "clamp_high") return {select(is_nan(x), x, select(is_nan(y), y, select(x > y, y, x))), true};
  if (op == "copysign") return {copysign(x, y), true};
  if (op == "pow" && wide) return {select(eq(y, 2.0), x * x, call("pow_f64", x, y)), false};
  return {call(named(op), x, y), false};  // pow, atan2, hypot, fmod, remainder, floor_div
}

}  // namespace

bool known_elementwise(std::string_view op, uint32_t dtype, size_t operands) {
  const Type t = type_of(dtype);
  if (t == Type::None) return false;
  const uint8_t bit = t == Type::Bool ? kBools : is_float(t) ? kFloats : kInts;
  for (const Known& k : kKnown)
    if (k.op == op) return (k.classes & bit) != 0 && k.operands == operands;
  return false;
}

bool is_quick(std::string_view op) {
  for (const Known& k : kKnown)
    if (k.op == op) return k.quick;
  return false;
}

// dtype: of the values that are computed with (the last operand).
Computed compute_elementwise(std::string_view op, uint32_t dtype, std::vector<Ex>& a, const std::vector<double>& params) {
  if (op == "select") return {select(a[0], a[1], a[2]), true};
  const Type t = type_of(dtype);
  if (t == Type::Bool) return on_bool(op, a);
  static constexpr std::pair<std::string_view, Op> compares[] = {{"eq", Op::Eq}, {"ne", Op::Ne}, {"lt", Op::Lt},
                                                                 {"le", Op::Le}, {"gt", Op::Gt}, {"ge", Op::Ge}};
  for (const auto& [name, code] : compares)
    if (op == name) return {op2(code, a[0], a[1]), true};
  return is_float(t) ? on_float(op, a, params) : on_int(op, dtype, a);
}

std::string why_no_cast(uint32_t from, uint32_t to) {
  const Type s = type_of(from), d = type_of(to);
  if (s == Type::None || d == Type::None) return "no kernel type for " + std::string(dtype_name(s == Type::None ? from : to));
  const bool narrow = d == Type::F16 || d == Type::BF16;
  // Through f32 these would round twice.
  if (narrow && (s == Type::F64 || (is_integer(s) && type_bytes(s) > 2)))
    return "a cast from " + std::string(dtype_name(from)) + " to " + std::string(dtype_name(to)) + " would round twice";
  return {};
}

Ex compute_cast(Ex x, uint32_t from, uint32_t to) {
  const Type s = type_of(from), d = type_of(to);
  if (s == d) return x;
  const Ex c = x.to(compute_type(s));
  if (d == Type::Bool) return s == Type::Bool ? c : ne(c, c.lit(int64_t{0}));
  if (s == Type::Bool || is_float(d)) {
    const Ex y = c.to(compute_type(d));
    return y.to(d);
  }
  if (!is_float(s)) {  // wraps
    const Type t = compute_type(d);
    return c.to(t).to(d);
  }
  // Truncates, saturates, and gives 0 for NaN.
  const int bits = type_bytes(d) * 8;
  const Ex v = bits <= 16 && s != Type::F64 ? c : c.to(Type::F64);  // f32 holds the ends of 16 bits, not those of 32
  const bool sign = is_signed(d);
  if (bits <= 32) {
    const double lo = sign ? -static_cast<double>(int64_t{1} << (bits - 1)) : 0.0,
                 hi = static_cast<double>((int64_t{1} << (sign ? bits - 1 : bits)) - 1);
    Ex y = select(is_nan(v), 0.0, v);
    y = select(y < lo, lo, y);
    y = select(y > hi, hi, y);
    if (d == Type::U32) return y.to(Type::I64).to(Type::U32);
    const Ex n = y.to(Type::I32);
    return n.to(d);
  }
  const double limit = sign ? 0x1p63 : 0x1p64, least = sign ? -0x1p63 : 0.0;
  const Ex inside = (v >= least) & (v < limit);
  const Ex n = select(inside, v, 0.0).to(d);
  const Ex top = n.lit(sign ? std::numeric_limits<int64_t>::max() : int64_t{-1});
  const Ex high = select(v >= limit, top, n);
  return sign ? select(v < least, n.lit(std::numeric_limits<int64_t>::min()), high) : high;
}

}  // namespace tessera::kit
