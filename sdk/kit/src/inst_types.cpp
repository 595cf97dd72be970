// SPDX-License-Identifier: Apache-2.0
#include "inst_types.hpp"

namespace tessera::kit {

std::optional<Misfit> misfit(const Inst& x, const std::array<Type, 3>& t) {
  std::optional<Misfit> found;
  const auto need = [&](bool holds, const char* rule, const std::string& expected) {
    if (!holds && !found) found = Misfit{rule, expected};
  };
  const auto count = [&](int n) {
    for (int a = 0; a < 3; ++a)
      need((x.args[static_cast<size_t>(a)] != kNone) == (a < n), "V3", std::to_string(n) + " operands");
  };
  if (const int n = num_args(x.op); n >= 0) count(n);
  const auto arithmetic = [](Type y) { return y != Type::None && y != Type::Bool && compute_type(y) == y; };
  const bool floating = x.type == Type::F32 || x.type == Type::F64;
  switch (x.op) {
    case Op::Const: need(x.type != Type::None, "V4", "a constant has a type"); break;
    case Op::Neg:
    case Op::Abs: need(t[0] == x.type && arithmetic(x.type), "V4", "arithmetic on a compute type"); break;
    case Op::Sqrt:
    case Op::Floor:
    case Op::Ceil:
    case Op::Trunc:
    case Op::Round: need(t[0] == x.type && floating, "V4", "f32 or f64"); break;
    case Op::Not:
      need(t[0] == x.type && (x.type == Type::Bool || (arithmetic(x.type) && is_integer(x.type))), "V4", "an integer or bool");
      break;
    case Op::Popcount: need(t[0] == x.type && arithmetic(x.type) && is_integer(x.type), "V4", "an integer"); break;
    case Op::Convert: need(x.type != Type::None && t[0] != Type::None, "V4", "a value"); break;
    case Op::Bitcast:
      need(type_bytes(t[0]) == type_bytes(x.type) && x.type != Type::Bool && t[0] != Type::Bool, "V4", "types of equal width");
      break;
    case Op::Lookup:
      need(x.id < num_tables(), "V8", "a table of the library");
      need(t[0] == Type::I32 && x.type == Type::F32, "V4", "an i32, and f32 as the result");
      break;
    case Op::Add:
    case Op::Sub:
    case Op::Mul:
    case Op::Div: need(t[0] == x.type && t[1] == x.type && arithmetic(x.type), "V4", "arithmetic on one compute type"); break;
    case Op::Rem:
    case Op::Shl:
    case Op::Shr: need(t[0] == x.type && t[1] == x.type && arithmetic(x.type) && is_integer(x.type), "V4", "integers"); break;
    case Op::And:
    case Op::Or:
    case Op::Xor:
      need(t[0] == x.type && t[1] == x.type && (x.type == Type::Bool || (arithmetic(x.type) && is_integer(x.type))), "V4",
           "integers or bools");
      break;
    case Op::Eq:
    case Op::Ne:
    case Op::Lt:
    case Op::Le:
    case Op::Gt:
    case Op::Ge:
      need(x.type == Type::Bool && t[0] == t[1] && arithmetic(t[0]), "V4",
           "two values of one compute type; the result is bool");
      break;
    case Op::Fma: need(floating && t[0] == x.type && t[1] == x.type && t[2] == x.type, "V4", "f32 or f64"); break;
    case Op::Select:
      need(t[0] == Type::Bool && t[1] == x.type && t[2] == x.type, "V4", "a bool and two values of the result's type");
      break;
    case Op::Call: {
      need(x.id < num_functions(), "V8", "a function of the library");
      const Function& f = function(x.id);
      count(static_cast<int>(f.params.size()));
      for (size_t a = 0; a < f.params.size(); ++a)
        need(t[a] == f.params[a], "V8", std::string("an operand of type ") + type_name(f.params[a]));
      need(x.type == f.result, "V8", "the function's result type");
      break;
    }
    case Op::Param: need(false, "V4", "parameters stand in functions only"); break;
    default: need(false, "V4", "an instruction without memory access"); break;
  }
  return found;
}

}  // namespace tessera::kit
