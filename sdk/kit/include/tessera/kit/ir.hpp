// SPDX-License-Identifier: Apache-2.0
// The kernel IR: what one fused region computes, for every point of an iteration space, without saying how it is spread over
// vectors, threads or blocks. Backends for CPU, CUDA, HIP, OpenCL and others share it; a schedule and a dialect turn it into
// text.
//
//   kernel @softmax(%x: in f32[s0 * 1024], %y: out f32[s0 * 1024]) symbols(s0 >= 1) {
//     parallel p0 < s0 {
//       loop r0 < 1024 {
//         %0 = load %x[1024 * p0 + r0] : f32
//         %1 = reduce max %0 : f32
//       }
//       loop r0 < 1024 {
//         %2 = load %x[1024 * p0 + r0] : f32
//         %3 = sub %2, %1 : f32
//         %4 = call exp_f32 %3 : f32
//         %5 = reduce sum %4 : f32
//       }
//       loop r0 < 1024 { ... store %y[1024 * p0 + r0], %7 }
//     }
//   }
//
// Semantics
//  - The body runs once for every point of the `parallel` axes; points are independent and run in any order.
//  - A loop runs its body for every point of its axes. Values of a body are seen inside it alone, but for the results of its
//    `reduce` instructions, which are seen after the loop.
//  - Instructions are IEEE 754 operations of their type, rounded once each; nothing is contracted. Integers wrap. Arithmetic
//    exists on i32, i64, u32, u64, f32, f64 and bool; i8, i16, u8, u16, f16 and bf16 are stored and converted (to nearest even;
//    NaN becomes the quiet NaN).
//  - A reduction combines the values of its loop, in the row-major order of the loop's axes, as ReduceOrder (interpret.hpp)
//    says: a function of their number alone. `dot` is exempt: any order, and fused multiply-add.
//  - `loop across` says that the last dimension of what is reduced is kept; it matters to the order alone.
//  - Loads read inputs, and of what this kernel stores only the element of an `out` or `inout` buffer that the same point
//    stored in an earlier loop, or (`inout`) stores later.
//  - Every index lies inside its buffer for every point; a load or store under a predicate only where the predicate holds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/abi.h"
#include "tessera/kit/index.hpp"

namespace tessera::kit {

inline constexpr uint32_t kNone = 0xffffffffu;

enum class Type : uint8_t { None, Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64 };
inline constexpr int kNumTypes = 14;
const char* type_name(Type t);           // "f32", "bool"
Type type_named(std::string_view name);  // None: unknown
Type type_of(uint32_t dtype);            // None: the kit has no such type
int type_bytes(Type t);                  // in memory; bool is a byte
inline bool is_float(Type t) { return t >= Type::F16; }
inline bool is_unsigned(Type t) { return t >= Type::U8 && t <= Type::U64; }
inline bool is_integer(Type t) { return t >= Type::I8 && t <= Type::U64; }
inline bool is_signed(Type t) { return t >= Type::I8 && t <= Type::I64; }
// The type in which values of `t` are computed: f32 for the 16-bit floats, i32 or u32 for the narrow integers.
Type compute_type(Type t);

enum class Op : uint8_t {
  // leaves
  Param,  // of a Function: number `id`
  Const,  // `bits` of the type, see constant_bits()
  Index,  // the value of the expression `index`, i64
  Load,   // buffer `id` at `index`; optional: args[0] predicate, args[1] value where it is false
  // one operand
  Neg,
  Abs,
  Sqrt,
  Floor,
  Ceil,
  Trunc,
  Round /* halves to even */,
  Not,
  Popcount,
  Convert,  // numeric; `exact`: the value is representable; float to integer truncates a value that is in range
  Bitcast,
  Lookup,  // f32: the number of table `id` of the library that the low five bits of an i32 say
  // two operands
  Add,
  Sub,
  Mul,
  Div,
  Rem /* integers, truncating */,
  And,
  Or,
  Xor,
  Shl,
  Shr /* arithmetic for signed types */,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  // three operands
  Fma,
  Select,
  Call,    // function `id` of the library
  Reduce,  // ReduceKind `id`; in a loop; its value exists after the loop
  Second,  // the second result of the reduction args[0]
  Store,   // buffer `id` at `index`, value args[0]; optional predicate args[1]
  Check,   // where args[0] is false, fault `id` is raised; the kernel goes on
};
inline constexpr int kNumOps = static_cast<int>(Op::Check) + 1;
const char* op_name(Op op);
int num_args(Op op);  // without optional ones; -1: as the function or the reduction has
inline bool is_compare(Op op) { return op >= Op::Eq && op <= Op::Ge; }

enum class ReduceKind : uint8_t {
  Sum,
  Prod,
  Max,
  Min,
  MaxNumber,  // of floats: the greatest that is not NaN; -inf if there is none
  Any,
  All,
  ArgMax,
  ArgMin,         // i64: number of the point in the loop; the first of equals, the first NaN
  Welford,        // mean; Second: sum of squared distances from it (Welford 1962; combined as Chan, Golub, LeVeque 1979)
  OnlineSoftmax,  // maximum; Second: sum of exp(x - maximum) (Milakov, Gimelshein 2018)
  Dot,            // sum of args[0] * args[1], any order
};
inline constexpr int kNumReduceKinds = 12;
const char* reduce_name(ReduceKind k);

// Faults that Check raises; a backend turns them into the run-time errors of the same meaning.
inline constexpr uint32_t kFaultDivision = 1;  // TSR-R010
inline constexpr uint32_t kFaultIndex = 2;     // TSR-R011

struct Inst {
  Op op = Op::Const;
  Type type = Type::None;  // of the value; None: no value
  bool exact = false;      // Convert
  std::array<uint32_t, 3> args{kNone, kNone, kNone};
  uint64_t bits = 0;        // Const
  Expr index = kZero;       // Index, Load, Store
  uint32_t id = kNone;      // Param, Load, Store: buffer; Call: function; Lookup: table; Reduce: kind; Check: fault
  uint32_t origin = kNone;  // Kernel::origins: the source op it computes
};

uint64_t constant_bits(Type t, double value);
uint64_t constant_bits(Type t, int64_t value);
double constant_float(Type t, uint64_t bits);  // of a float type

enum class Access : uint8_t { In, Out, InOut };
struct Buffer {
  std::string name;
  Access access = Access::In;
  Type type = Type::F32;
  Expr extent = kZero;  // elements, dense
};

struct Symbol {
  std::string name;
  int64_t min = 0;
};

struct Item {  // of a body
  bool is_loop = false;
  uint32_t id = 0;  // in Kernel::insts or Kernel::loops
};
struct Loop {
  std::vector<uint32_t> axes;  // outermost first
  std::vector<Item> body;
  // The last dimension of what is reduced is kept, as in a sum over rows. Families of devices may reduce these in an order of
  // their own (program/order.hpp). It is a property of the source op, not of how its operand lies in memory, so that fusion
  // changes no bit.
  bool across = false;
};

struct Kernel {
  std::string name;
  IndexPool pool;
  std::vector<Symbol> symbols;          // numbered as in the pool
  std::vector<Buffer> buffers;          // the order of the launch's pointers
  std::vector<std::string> axis_names;  // numbered as in the pool
  std::vector<uint32_t> parallel;       // axes, outermost first
  std::vector<Inst> insts;              // a value is the number of its instruction
  std::vector<Loop> loops;
  std::vector<Item> body;
  std::vector<std::string> origins;  // text for people: "%3 = gelu (mlp.cpp:12)"

  Type type_of(uint32_t value) const { return insts[value].type; }
  uint32_t add_axis(std::string axis_name, Expr extent) {
    axis_names.push_back(std::move(axis_name));
    return pool.add_axis(extent);
  }
  uint32_t add_symbol(std::string symbol_name, int64_t min) {
    symbols.push_back({std::move(symbol_name), min});
    return pool.add_symbol(min);
  }
};

// A pure function of values of one point: elementary functions as sequences of IEEE operations, so that every device and the
// interpreter give the same bits. `external`: a scalar routine of the platform's C library instead (f64; the body is empty).
struct Function {
  std::string name;
  std::vector<Type> params;
  Type result = Type::None;
  std::vector<Inst> insts;  // the first params.size() are Params
  uint32_t value = kNone;   // what it returns
  std::string external;     // "lgamma", or empty
  // The function that computes the same from tables, with other bits, for devices that hold those in registers. kNone: there is
  // none.
  uint32_t from_tables = kNone;
};

struct Table {
  std::string name;
  const float* values = nullptr;  // 32, aligned to 64 bytes
};

// The library of functions, immutable. Throws TSR-K022 for an unknown name.
const Function& function(uint32_t id);
uint32_t function_named(std::string_view name);
size_t num_functions();
// Its tables, immutable too. Throws TSR-K022 for an unknown name.
const Table& table(uint32_t id);
uint32_t table_named(std::string_view name);
size_t num_tables();

}  // namespace tessera::kit
