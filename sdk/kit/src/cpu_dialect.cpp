// SPDX-License-Identifier: Apache-2.0
// C++ on GCC's vector extension: vectors of any power of two of lanes, which the compiler cuts into registers. Masks are
// vectors of 0 and -1 of 32 bits, whatever was compared.
#include <charconv>
#include <cmath>
#include <vector>

#include "cpu_helpers.hpp"
#include "tessera/kit/dialect.hpp"

namespace tessera::kit {
namespace {

// Two signs in a row are another operator.
std::string minus(const std::string& x) { return x.starts_with('-') ? "-(" + x + ")" : "-" + x; }

const char* element_name(Type t) {  // of vector types
  switch (t) {
    case Type::F16:
    case Type::BF16: return "u16";
    case Type::Bool: return "i32";
    default: return type_name(t);
  }
}
const char* scalar_name(Type t) {
  switch (t) {
    case Type::Bool: return "bool";
    case Type::I8: return "signed char";
    case Type::I16: return "short";
    case Type::I32: return "int";
    case Type::I64: return "i64";
    case Type::U8: return "unsigned char";
    case Type::U16:
    case Type::F16:
    case Type::BF16: return "unsigned short";
    case Type::U32: return "unsigned";
    case Type::U64: return "u64";
    case Type::F32: return "float";
    default: return "double";
  }
}
Type element_type(Type t) { return t == Type::F16 || t == Type::BF16 ? Type::U16 : t == Type::Bool ? Type::I32 : t; }
Type integer_of(int bytes, bool is_signed) {
  switch (bytes) {
    case 1: return is_signed ? Type::I8 : Type::U8;
    case 2: return is_signed ? Type::I16 : Type::U16;
    case 4: return is_signed ? Type::I32 : Type::U32;
    default: return is_signed ? Type::I64 : Type::U64;
  }
}
std::string number(uint64_t n) { return std::to_string(n); }

class CpuDialect final : public Dialect {
 public:
  std::string type(Type t, int lanes, Needs& needs) const override {
    if (lanes == 1) return scalar_name(t);
    needs.types.emplace(element_type(t), lanes);
    return std::string(element_name(t)) + "x" + std::to_string(lanes);
  }
  std::string memory_type(Type t) const override { return t == Type::Bool ? "unsigned char" : scalar_name(t); }

  std::string constant(Type t, uint64_t bits) const override {
    switch (t) {
      case Type::Bool: return bits ? "true" : "false";
      case Type::F32:
      case Type::F64: {
        const double x = constant_float(t, bits);
        const bool wide = t == Type::F64;
        if (std::isnan(x))
          return "__builtin_bit_cast(" + std::string(scalar_name(t)) + ", " + number(bits) + (wide ? "ull)" : "u)");
        if (std::isinf(x)) return std::string(x < 0 ? "-" : "") + (wide ? "__builtin_inf()" : "__builtin_inff()");
        char buffer[64];
        const auto end = wide ? std::to_chars(buffer, buffer + sizeof buffer, x).ptr
                              : std::to_chars(buffer, buffer + sizeof buffer, static_cast<float>(x)).ptr;
        std::string s(buffer, end);
        if (s.find_first_of(".e") == s.npos) s += ".0";
        return wide ? s : s + "f";
      }
      case Type::I64: return "(i64)" + number(bits) + "ull";
      case Type::U64: return number(bits) + "ull";
      case Type::U32: return number(bits) + "u";
      case Type::I32: return "(int)" + number(bits) + "u";
      default: return "(" + std::string(scalar_name(t)) + ")" + number(bits);
    }
  }

  std::string splat(Type t, int lanes, const std::string& scalar, Needs& needs) const override {
    if (lanes == 1) return scalar;
    type(t, lanes, needs);
    const std::string name = std::string("splat_") + element_name(t) + "x" + std::to_string(lanes);
    needs.helpers.emplace("splat_" + std::string(type_name(element_type(t))), lanes);
    return name + "(" + (t == Type::Bool ? "-(int)(" + scalar + ")" : scalar) + ")";
  }

  std::string instruction(const Inst& x, Type in, int lanes, std::span<const std::string> a, int shift,
                          Needs& needs) const override {
    if (x.op == Op::Lookup) return lookup(x.id, lanes, a[0], needs);
    return lanes == 1 ? scalar(x, in, a, shift, needs) : vector(x, in, lanes, a, shift, needs);
  }

  std::string external(const Function& f, int lanes, std::span<const std::string> a, Needs& needs) const override {
    const bool guarded = f.params.size() == 2 && f.params[1] == Type::Bool;
    if (lanes == 1) {
      if (guarded) return "(" + a[1] + " ? __builtin_" + f.external + "(" + a[0] + ") : " + a[0] + ")";
      return "__builtin_" + f.external + "(" + a[0] + (a.size() > 1 ? ", " + a[1] : "") + ")";
    }
    type(Type::F64, lanes, needs);
    if (guarded) type(Type::Bool, lanes, needs);
    needs.helpers.emplace((guarded ? "where_" : f.params.size() == 2 ? "lanes2_" : "lanes_") + f.external, lanes);
    return (guarded ? "where_" : "lanes_") + f.external + "_x" + std::to_string(lanes) + "(" + a[0] +
           (a.size() > 1 ? ", " + a[1] : "") + ")";
  }

  std::string load(Type t, int lanes, const std::string& p, const std::string& count, Needs& needs) const override {
    if (lanes == 1) return t == Type::Bool ? "*(" + p + ") != 0" : "*(" + p + ")";
    const Type e = t == Type::Bool ? Type::U8 : element_type(t);
    const std::string v = type(e, lanes, needs);
    std::string text;
    if (count.empty()) {
      text = "*(const " + v + "_m*)(" + p + ")";
    } else {
      needs.helpers.emplace(std::string("some_") + type_name(e), lanes);
      text = "load_some_" + v + "(" + p + ", " + count + ")";
    }
    return t == Type::Bool ? "__builtin_convertvector(" + text + " != 0, " + type(Type::Bool, lanes, needs) + ")" : text;
  }

  std::string store(Type t, int lanes, const std::string& p, const std::string& value, const std::string& count,
                    Needs& needs) const override {
    if (lanes == 1) return "*(" + p + ") = " + value;
    const Type e = t == Type::Bool ? Type::U8 : element_type(t);
    const std::string v = type(e, lanes, needs);
    const std::string x = t == Type::Bool ? "__builtin_convertvector(" + value + " & 1, " + v + ")" : value;
    if (count.empty()) return "*(" + v + "_m*)(" + p + ") = " + x;
    needs.helpers.emplace(std::string("some_") + type_name(e), lanes);
    return "store_some_" + v + "(" + p + ", " + x + ", " + count + ")";
  }

  std::string of_byte_table(Type t, int lanes, const std::string& table, const std::string& index,
                            Needs& needs) const override {
    if (lanes < 16 || type_bytes(t) != 1 || t == Type::Bool) return {};
    const std::string v = type(t, lanes, needs);
    type(Type::I64, lanes, needs), type(Type::U8, lanes, needs), type(Type::U16, lanes, needs);
    needs.helpers.emplace(std::string("byte_table_") + type_name(t), lanes);
    return "byte_table_" + v + "(" + table + ", " + index + ")";
  }

  std::string transpose(Type t, int lanes, const std::string& p, const std::string& step, const std::string& tile,
                        Needs& needs) const override {
    const Type e = element_type(t);
    const std::string v = type(e, lanes, needs);
    needs.helpers.emplace(std::string("transpose_") + type_name(e), lanes);
    return "transpose_" + v + "(" + p + ", " + step + ", " + tile + ")";
  }
  std::string four_rows(Type t, int lanes, const std::string& p, const std::string& step, const std::string& to,
                        Needs& needs) const override {
    const Type e = element_type(t);
    const std::string v = type(e, lanes, needs);
    needs.helpers.emplace(std::string("four_rows_") + type_name(e), lanes);
    return "four_rows_" + v + "(" + p + ", " + step + ", " + to + ")";
  }
  std::string four_at(Type t, int lanes, const std::string& element) const override {
    const std::string w = std::to_string(lanes);
    if (type_bytes(t) == 4) return element + " % 4 * " + w + " + " + element + " / 4 * 4";
    return element + " % 8 / 2 * " + w + " + (" + element + " / 8 * 2 + " + element + " % 2) * 4";
  }
  std::string joined_fours(Type t, int lanes, const std::string& p, Needs& needs) const override {
    const Type e = element_type(t);
    const std::string v = type(e, lanes, needs);
    for (int n = 4; n < lanes; n *= 2) type(e, n, needs);
    needs.helpers.emplace(std::string("joined_fours_") + type_name(e), lanes);
    return "joined_fours_" + v + "(" + p + ")";
  }
  std::string advance(const std::string& pointer, const std::string& step) const override {
    return pointer + " += " + step + "; __asm__(\"\" : \"+r\"(" + pointer + "));";
  }
  std::string prefetch(const std::string& p) const override { return "__builtin_prefetch(" + p + ", 0, 2)"; }
  std::string stream(Type t, int lanes, const std::string& p, const std::string& value, const std::string& flag,
                     Needs& needs) const override {
    const Type e = t == Type::Bool ? Type::U8 : element_type(t);
    const std::string v = type(e, lanes, needs);
    const std::string x = t == Type::Bool ? "__builtin_convertvector(" + value + " & 1, " + v + ")" : value;
    needs.helpers.emplace(std::string("stream_") + type_name(e), lanes);
    return "stream_" + v + "(" + p + ", " + x + ", " + flag + ")";
  }
  std::string stream_fence(const std::string& flag, Needs& needs) const override {
    needs.helpers.emplace("fence", 1);
    return "fence(" + flag + ")";
  }

  std::string rounded(Type t, int lanes, const std::string& value, bool short_nan, Needs& needs) const override {
    if (t != Type::BF16 || lanes == 1) return {};
    type(Type::F32, lanes, needs), type(Type::U32, lanes, needs), type(Type::Bool, lanes, needs);
    return helper(short_nan ? "round_bf16" : "round_any_bf16", lanes, needs) + "(" + value + ")";
  }
  std::string narrowed(Type t, int lanes, const std::string& value, Needs& needs) const override {
    if (t != Type::BF16 || (lanes != 16 && lanes != 32)) return {};
    half_types(lanes, needs);
    needs.helpers.emplace("narrow_bf16", 16);
    if (lanes == 32) needs.helpers.emplace("narrow_fast_bf16", 16);
    return helper("narrow_fast_bf16", lanes, needs) + "(" + value + ")";
  }
  std::string hide(Type t, int lanes, const std::string& value, Needs& needs) const override {
    if (type_bytes(t) * lanes > 64 || type_bytes(t) * lanes < 16) return value;
    const Type e = element_type(t);
    type(e, lanes, needs);
    needs.helpers.emplace(std::string("hide_") + type_name(e), lanes);
    return "hide_" + std::string(element_name(t)) + "x" + std::to_string(lanes) + "(" + value + ")";
  }
  std::string instead(const Function& f, int lanes) const override {
    if (lanes == 32 && !instead(f, 16).empty()) {
      std::vector<std::string> operands;
      for (size_t i = 0; i < f.params.size(); ++i) operands.push_back("v" + std::to_string(i));
      return "#ifdef __AVX512F__\n  return " + in_halves(function_name(f, 16), "", operands, 32) + ";\n#endif\n";
    }
    if (lanes != 16) return {};
    const auto builtin = [](const std::string& name, const std::string& args) {
      return "#if defined(__AVX512F__) && __has_builtin(" + name + ")\n  return " + name + "(" + args + ");\n#endif\n";
    };
    if (f.name.starts_with("ldexp_")) return builtin("__builtin_ia32_scalefps512_mask", "v0, v2, v0, (unsigned short)-1, 4");
    if (f.name == "within_f32") return builtin("__builtin_ia32_rangeps512_mask", "v0, v1, 2, v0, (unsigned short)-1, 4");
    if (f.name == "nearest_f32") return builtin("__builtin_ia32_rndscaleps_mask", "v0, 8, v0, (unsigned short)-1, 4");
    return {};
  }
  std::string function_name(const Function& f, int lanes) const override {
    return lanes == 1 ? f.name : f.name + "_x" + std::to_string(lanes);
  }
  std::string function_head(const Function& f, int lanes, Needs& needs) const override {
    std::string s = "INLINE " + type(f.result, lanes, needs) + " " + function_name(f, lanes) + "(";
    for (size_t i = 0; i < f.params.size(); ++i)
      s += (i ? ", " : "") + type(f.params[i], lanes, needs) + " v" + std::to_string(i);
    return s + ") {\n";
  }

  std::string prelude(const Needs& needs) const override;

 private:
  std::string lookup(uint32_t id, int lanes, const std::string& index, Needs& needs) const {
    needs.tables.insert(id);
    if (lanes == 1) return table(id).name + "[(unsigned)" + index + " & 31u]";
    type(Type::F32, 16, needs), type(Type::I32, 16, needs);
    for (int n = 32; n < lanes; n *= 2) type(Type::F32, n, needs), type(Type::I32, n, needs), helper("lookup", n, needs);
    return helper("lookup", lanes, needs) + "(" + table(id).name + ", " + index + ")";
  }
  std::string cast_vector(const std::string& x, Type to, int lanes, Needs& needs) const {
    return "__builtin_convertvector(" + x + ", " + type(to, lanes, needs) + ")";
  }
  // The mask in lanes of the width of `t`.
  std::string mask_for(const std::string& m, Type t, int lanes, Needs& needs) const {
    const int bytes = t == Type::Bool ? 4 : type_bytes(t);
    return bytes == 4 ? m : cast_vector(m, integer_of(bytes, true), lanes, needs);
  }
  std::string helper(const std::string& name, int lanes, Needs& needs) const {
    needs.helpers.emplace(name, lanes);
    return lanes == 1 ? name : name + "_x" + std::to_string(lanes);
  }

  std::string half(const Inst& x, Type in, int lanes, const std::string& a, Needs& needs) const {
    half_types(lanes, needs);
    if (in == Type::BF16 && lanes == 32) needs.helpers.emplace("widen_bf16", 16);
    if (in == Type::BF16) return helper("widen_bf16", lanes, needs) + "(" + a + ")";
    if (in == Type::F16) return helper("widen_f16", lanes, needs) + "(" + a + ")";
    if (x.type == Type::F16) return helper("narrow_f16", lanes, needs) + "(" + a + ")";
    if (!x.exact && lanes == 32) needs.helpers.emplace("narrow_bf16", 16);
    return helper(x.exact ? "cut_bf16" : "narrow_bf16", lanes, needs) + "(" + a + ")";
  }
  // What helpers of half types are written with; those of 32 lanes may be two of 16.
  void half_types(int lanes, Needs& needs) const {
    for (const Type t : {Type::F32, Type::U32, Type::U16, Type::Bool}) {
      type(t, lanes, needs);
      if (lanes == 32) type(t, 16, needs);
    }
  }

  static const char* infix(Op op) {
    switch (op) {
      case Op::Add: return " + ";
      case Op::Sub: return " - ";
      case Op::Mul: return " * ";
      case Op::Div: return " / ";
      case Op::Rem: return " % ";
      case Op::And: return " & ";
      case Op::Or: return " | ";
      case Op::Xor: return " ^ ";
      case Op::Eq: return " == ";
      case Op::Ne: return " != ";
      case Op::Lt: return " < ";
      case Op::Le: return " <= ";
      case Op::Gt: return " > ";
      case Op::Ge: return " >= ";
      default: return " ? ";
    }
  }

  std::string scalar(const Inst& x, Type in, std::span<const std::string> a, int shift, Needs& needs) const {
    const std::string t = scalar_name(x.type);
    const bool wide = x.type == Type::F64;
    const auto unsigned_of = [&] { return std::string(scalar_name(integer_of(type_bytes(x.type), false))); };
    switch (x.op) {
      case Op::Neg: return is_float(x.type) ? minus(a[0]) : "(" + t + ")(0 - (" + unsigned_of() + ")" + a[0] + ")";
      case Op::Abs:
        if (is_float(x.type)) return std::string(wide ? "__builtin_fabs(" : "__builtin_fabsf(") + a[0] + ")";
        if (is_unsigned(x.type)) return a[0];
        return "(" + a[0] + " < 0 ? (" + t + ")(0 - (" + unsigned_of() + ")" + a[0] + ") : " + a[0] + ")";
      case Op::Sqrt: return std::string(wide ? "__builtin_sqrt(" : "__builtin_sqrtf(") + a[0] + ")";
      case Op::Floor: return std::string(wide ? "__builtin_floor(" : "__builtin_floorf(") + a[0] + ")";
      case Op::Ceil: return std::string(wide ? "__builtin_ceil(" : "__builtin_ceilf(") + a[0] + ")";
      case Op::Trunc: return std::string(wide ? "__builtin_trunc(" : "__builtin_truncf(") + a[0] + ")";
      case Op::Round: return std::string(wide ? "__builtin_nearbyint(" : "__builtin_nearbyintf(") + a[0] + ")";
      case Op::Fma: return std::string(wide ? "__builtin_fma(" : "__builtin_fmaf(") + a[0] + ", " + a[1] + ", " + a[2] + ")";
      case Op::Not: return (x.type == Type::Bool ? "!" : "~") + a[0];
      case Op::Popcount: return "(" + t + ")__builtin_popcountll((u64)(" + unsigned_of() + ")" + a[0] + ")";
      case Op::Convert:
        if (in == Type::F16 || in == Type::BF16 || x.type == Type::F16 || x.type == Type::BF16)
          return half(x, in, 1, a[0], needs);
        return "(" + t + ")" + a[0];
      case Op::Bitcast: return "__builtin_bit_cast(" + t + ", " + a[0] + ")";
      case Op::Select: return a[0] + " ? " + a[1] + " : " + a[2];
      case Op::Shl:
      case Op::Shr: {
        const int bits = type_bytes(x.type) * 8;
        const std::string n = shift >= 0 ? std::to_string(shift) : "(" + unsigned_of() + ")" + a[1];
        const std::string v = x.op == Op::Shl ? "(" + t + ")((" + unsigned_of() + ")" + a[0] + " << " + n + ")"
                                              : "(" + t + ")(" + a[0] + " >> " + n + ")";
        if (shift >= 0) return v;
        const std::string beyond =
            x.op == Op::Shr && is_signed(x.type) ? "(" + t + ")(" + a[0] + " < 0 ? -1 : 0)" : "(" + t + ")0";
        return n + " < " + std::to_string(bits) + " ? " + v + " : " + beyond;
      }
      default: break;
    }
    if (is_compare(x.op)) return a[0] + infix(x.op) + a[1];
    if (is_float(x.type)) return a[0] + infix(x.op) + a[1];
    if (x.op == Op::Add || x.op == Op::Sub || x.op == Op::Mul)
      return "(" + t + ")((" + unsigned_of() + ")" + a[0] + infix(x.op) + "(" + unsigned_of() + ")" + a[1] + ")";
    return "(" + t + ")(" + a[0] + infix(x.op) + a[1] + ")";
  }

  std::string vector(const Inst& x, Type in, int lanes, std::span<const std::string> a, int shift, Needs& needs) const {
    const std::string t = type(x.type, lanes, needs);
    const auto bits = [&](Type of, bool sign) { return type(integer_of(type_bytes(of), sign), lanes, needs); };
    switch (x.op) {
      case Op::Neg:
        if (is_float(x.type)) return minus(a[0]);
        return "(" + t + ")(0 - (" + bits(x.type, false) + ")" + a[0] + ")";
      case Op::Abs:
        if (is_float(x.type))
          return "(" + t + ")((" + bits(x.type, false) + ")" + a[0] + " & " +
                 (x.type == Type::F64 ? "0x7fffffffffffffffull" : "0x7fffffffu") + ")";
        if (is_unsigned(x.type)) return a[0];
        return "(" + a[0] + " < 0) ? (" + t + ")(0 - (" + bits(x.type, false) + ")" + a[0] + ") : " + a[0];
      case Op::Sqrt:
      case Op::Floor:
      case Op::Ceil:
      case Op::Trunc:
      case Op::Round: return helper(std::string(op_name(x.op)) + "_" + type_name(x.type), lanes, needs) + "(" + a[0] + ")";
      case Op::Fma:
        return helper(std::string("fma_") + type_name(x.type), lanes, needs) + "(" + a[0] + ", " + a[1] + ", " + a[2] + ")";
      case Op::Popcount: return helper(std::string("popcount_") + type_name(x.type), lanes, needs) + "(" + a[0] + ")";
      case Op::Not: return "~" + a[0];
      case Op::Convert: {
        if (in == Type::F16 || in == Type::BF16 || x.type == Type::F16 || x.type == Type::BF16)
          return half(x, in, lanes, a[0], needs);
        if (in == Type::Bool) return cast_vector("(" + a[0] + " & 1)", x.type, lanes, needs);
        return cast_vector(a[0], x.type, lanes, needs);
      }
      case Op::Bitcast: return "(" + t + ")" + a[0];
      case Op::Select:
        if (x.type == Type::Bool) return "(" + a[0] + " & " + a[1] + ") | (~" + a[0] + " & " + a[2] + ")";
        return mask_for(a[0], x.type, lanes, needs) + " ? " + a[1] + " : " + a[2];
      case Op::Shl:
      case Op::Shr: {
        const std::string u = bits(x.type, false);
        const std::string n = shift >= 0 ? std::to_string(shift)
                                         : "((" + u + ")" + a[1] + " & " + std::to_string(type_bytes(x.type) * 8 - 1) + ")";
        const std::string right = is_signed(x.type) && shift < 0 ? "(" + t + ")" + n : n;
        const std::string v = x.op == Op::Shl ? "(" + t + ")((" + u + ")" + a[0] + " << " + n + ")" : a[0] + " >> " + right;
        if (shift >= 0) return v;
        const std::string beyond = x.op == Op::Shr && is_signed(x.type) ? "(" + t + ")(" + a[0] + " < 0)" : "(" + t + "){}";
        return "((" + u + ")" + a[1] + " < " + std::to_string(type_bytes(x.type) * 8) + ") ? " + v + " : " + beyond;
      }
      default: break;
    }
    if (is_compare(x.op)) {
      const std::string c = "(" + a[0] + infix(x.op) + a[1] + ")";
      return type_bytes(in) == 4 ? c : cast_vector(c, Type::Bool, lanes, needs);
    }
    if (is_signed(x.type) && (x.op == Op::Add || x.op == Op::Sub || x.op == Op::Mul)) {
      const std::string u = bits(x.type, false);
      return "(" + t + ")((" + u + ")" + a[0] + infix(x.op) + "(" + u + ")" + a[1] + ")";
    }
    return a[0] + infix(x.op) + a[1];
  }
};

std::string CpuDialect::prelude(const Needs& needs) const {
  std::string s =
      "typedef __INT64_TYPE__ i64;\ntypedef __UINT64_TYPE__ u64;\n#define INLINE static inline __attribute__((always_inline))\n"
      "#ifndef __has_builtin\n#define __has_builtin(x) 0\n#endif\n"
      "struct tsr_kernel_args {\n  void* const* buffers;\n  const i64* dims;\n  void* workspace;\n  unsigned* faults;\n  i64 "
      "stream;\n};\n"
      "INLINE i64 floordiv(i64 a, i64 b) { const i64 q = a / b; return q - (i64)((a % b != 0) & ((a < 0) != (b < 0))); }\n"
      "INLINE i64 mod(i64 a, i64 b) { const i64 r = a % b; return r + (i64)((r != 0) & ((r < 0) != (b < 0))) * b; }\n"
      "INLINE i64 min(i64 a, i64 b) { return a < b ? a : b; }\nINLINE i64 max(i64 a, i64 b) { return a > b ? a : b; }\n";
  for (const auto& [t, lanes] : needs.types) {
    const std::string name = std::string(element_name(t)) + "x" + std::to_string(lanes);
    const std::string bytes = std::to_string(type_bytes(t) * lanes), e = scalar_name(t);
    s += "typedef " + e + " " + name + " __attribute__((vector_size(" + bytes + ")));\n";
    s += "typedef " + e + " " + name + "_m __attribute__((vector_size(" + bytes + "), aligned(" +
         std::to_string(type_bytes(t)) + "), may_alias));\n";
  }
  for (const uint32_t id : needs.tables) {
    s += "alignas(64) static const float " + table(id).name + "[32] = {";
    for (int i = 0; i < 32; ++i)
      s += (i == 0 ? "" : ", ") + constant(Type::F32, constant_bits(Type::F32, double{table(id).values[i]}));
    s += "};\n";
  }
  const auto lookups = needs.helpers.lower_bound({"lookup", 0});
  if (lookups != needs.helpers.end() && lookups->first == "lookup") s += lookup_helper(16);  // the others call it
  for (const auto& [name, lanes] : needs.helpers) {
    const std::string n = std::to_string(lanes);
    if (name == "lookup") {
      if (lanes != 16) s += lookup_helper(lanes);
    } else if (name.starts_with("splat_")) {
      const Type t = type_named(name.substr(6));
      const std::string v = std::string(element_name(t)) + "x" + n;
      // x - 0 is x, also for -0.0.
      s += "INLINE " + v + " splat_" + v + "(" + scalar_name(t) + " x) { return x " + (is_float(t) ? "- " : "+ ") + v +
           "{}; }\n";
    } else if (name.starts_with("byte_table_")) {
      const Type t = type_named(name.substr(11));
      s += byte_table_helper(std::string(element_name(t)) + "x" + n, scalar_name(t), lanes);
    } else if (name.starts_with("some_")) {
      s += some_helpers(name.substr(5), lanes);
    } else if (name.starts_with("stream_")) {
      const Type t = type_named(name.substr(7));
      const std::string v = std::string(element_name(t)) + "x" + n;
      s += "INLINE void stream_" + v + "(" + scalar_name(t) + "* p, " + v +
           " x, i64 stream) {\n#if __has_builtin(__builtin_nontemporal_store)\n  if (stream && ((u64)p & " +
           std::to_string(type_bytes(t) * lanes - 1) + "u) == 0) return __builtin_nontemporal_store(x, (" + v +
           "*)p);\n#endif\n  *(" + v + "_m*)p = x;\n}\n";
    } else if (name.starts_with("transpose_")) {
      const Type t = type_named(name.substr(10));
      s += transpose_helper(std::string(element_name(t)) + "x" + n, scalar_name(t), lanes);
    } else if (name.starts_with("four_rows_")) {
      const Type t = type_named(name.substr(10));
      s += four_rows_helper(std::string(element_name(t)) + "x" + n, scalar_name(t), lanes, 16 / type_bytes(t));
    } else if (name.starts_with("joined_fours_")) {
      const Type t = type_named(name.substr(13));
      s += joined_fours_helper(element_name(t), scalar_name(t), lanes);
    } else if (name.starts_with("hide_")) {
      const std::string v = std::string(element_name(type_named(name.substr(5)))) + "x" + n;
      s += "INLINE " + v + " hide_" + v + "(" + v +
           " x) {\n#ifdef __AVX512F__\n  __asm__(\"\" : \"+v\"(x));\n#endif\n  return x;\n}\n";
    } else if (name == "fence") {
      s += "INLINE void fence(i64 stream) {\n#if __has_builtin(__builtin_nontemporal_store) && "
           "__has_builtin(__builtin_ia32_sfence)\n  if (stream) __builtin_ia32_sfence();\n#endif\n}\n";
    } else if (name.starts_with("widen_") || name.starts_with("narrow_") || name.starts_with("cut_") ||
               name.starts_with("round_bf16") || name.starts_with("round_any_")) {
      s += half_helper(name, lanes);
    } else if (name.starts_with("where_")) {
      const std::string f = name.substr(6), v = "f64x" + n;
      s += "INLINE " + v + " where_" + f + "_x" + n + "(" + v + " a, i32x" + n + " c) {\n" +
           lane_loop(lanes, "if (c[j]) a[j] = __builtin_" + f + "(a[j]);") + "  return a;\n}\n";
    } else if (name.starts_with("lanes_")) {
      const std::string f = name.substr(6), v = "f64x" + n;
      s += "INLINE " + v + " lanes_" + f + "_x" + n + "(" + v + " a) {\n" +
           lane_loop(lanes, "a[j] = __builtin_" + f + "(a[j]);") + "  return a;\n}\n";
    } else if (name.starts_with("lanes2_")) {
      const std::string f = name.substr(7), v = "f64x" + n;
      s += "INLINE " + v + " lanes_" + f + "_x" + n + "(" + v + " a, " + v + " b) {\n" +
           lane_loop(lanes, "a[j] = __builtin_" + f + "(a[j], b[j]);") + "  return a;\n}\n";
    } else {
      s += math_helper(name, lanes);
    }
  }
  return s;
}

}  // namespace

const Dialect& cpu_dialect() {
  static const CpuDialect d;
  return d;
}

}  // namespace tessera::kit
