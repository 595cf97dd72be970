// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/ir.hpp"

#include <bit>

#include "tessera/float_formats.hpp"

namespace tessera::kit {
namespace {

constexpr const char* kTypeNames[kNumTypes] = {"none", "bool", "i8",  "i16", "i32",  "i64", "u8",
                                               "u16",  "u32",  "u64", "f16", "bf16", "f32", "f64"};
constexpr const char* kOpNames[kNumOps] = {
    "param", "const",  "index", "load",                                                                                   //
    "neg",   "abs",    "sqrt",  "floor",  "ceil",   "trunc", "round", "not", "popcount", "convert", "bitcast", "lookup",  //
    "add",   "sub",    "mul",   "div",    "rem",    "and",   "or",    "xor", "shl",      "shr",                           //
    "eq",    "ne",     "lt",    "le",     "gt",     "ge",                                                                 //
    "fma",   "select", "call",  "reduce", "second", "store", "check"};
constexpr const char* kReduceNames[kNumReduceKinds] = {"sum", "prod",   "max",    "min",     "max_number",     "any",
                                                       "all", "argmax", "argmin", "welford", "online_softmax", "dot"};

}  // namespace

const char* type_name(Type t) { return kTypeNames[static_cast<int>(t)]; }
Type type_named(std::string_view name) {
  for (int i = 1; i < kNumTypes; ++i)
    if (name == kTypeNames[i]) return static_cast<Type>(i);
  return Type::None;
}
Type type_of(uint32_t dtype) {
  switch (dtype) {
    case TSR_BOOL: return Type::Bool;
    case TSR_I8: return Type::I8;
    case TSR_I16: return Type::I16;
    case TSR_I32: return Type::I32;
    case TSR_I64: return Type::I64;
    case TSR_U8: return Type::U8;
    case TSR_U16: return Type::U16;
    case TSR_U32: return Type::U32;
    case TSR_U64: return Type::U64;
    case TSR_F16: return Type::F16;
    case TSR_BF16: return Type::BF16;
    case TSR_F32: return Type::F32;
    case TSR_F64: return Type::F64;
    default: return Type::None;
  }
}
int type_bytes(Type t) {
  switch (t) {
    case Type::None: return 0;
    case Type::Bool:
    case Type::I8:
    case Type::U8: return 1;
    case Type::I16:
    case Type::U16:
    case Type::F16:
    case Type::BF16: return 2;
    case Type::I32:
    case Type::U32:
    case Type::F32: return 4;
    default: return 8;
  }
}
Type compute_type(Type t) {
  switch (t) {
    case Type::I8:
    case Type::I16: return Type::I32;
    case Type::U8:
    case Type::U16: return Type::U32;
    case Type::F16:
    case Type::BF16: return Type::F32;
    default: return t;
  }
}

const char* op_name(Op op) { return kOpNames[static_cast<int>(op)]; }
int num_args(Op op) {
  if (op <= Op::Load) return 0;
  if (op <= Op::Lookup) return 1;
  if (op <= Op::Ge) return 2;
  switch (op) {
    case Op::Fma:
    case Op::Select: return 3;
    case Op::Call:
    case Op::Reduce: return -1;
    default: return 1;
  }
}
const char* reduce_name(ReduceKind k) { return kReduceNames[static_cast<int>(k)]; }

uint64_t constant_bits(Type t, double x) {
  switch (t) {
    case Type::F64: return std::bit_cast<uint64_t>(x);
    case Type::F32: return std::bit_cast<uint32_t>(static_cast<float>(x));
    case Type::F16: return float_to_half(static_cast<float>(x));
    case Type::BF16: return float_to_bf16(static_cast<float>(x));
    case Type::Bool: return x != 0;
    default: return constant_bits(t, static_cast<int64_t>(x));
  }
}
uint64_t constant_bits(Type t, int64_t x) {
  switch (t) {
    case Type::F64:
    case Type::F32:
    case Type::F16:
    case Type::BF16: return constant_bits(t, static_cast<double>(x));
    case Type::Bool: return x != 0;
    default: {
      const int bits = type_bytes(t) * 8;
      return static_cast<uint64_t>(x) & (~uint64_t{0} >> (64 - bits));
    }
  }
}
double constant_float(Type t, uint64_t bits) {
  switch (t) {
    case Type::F64: return std::bit_cast<double>(bits);
    case Type::F32: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case Type::F16: return half_to_float(static_cast<uint16_t>(bits));
    case Type::BF16: return bf16_to_float(static_cast<uint16_t>(bits));
    default: return static_cast<double>(static_cast<int64_t>(bits));
  }
}

}  // namespace tessera::kit
