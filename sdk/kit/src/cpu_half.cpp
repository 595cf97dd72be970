// SPDX-License-Identifier: Apache-2.0
// Values of 16-bit floats between two operations: rounded to their type, and widened again to be computed with.
#include <cmath>

#include "cpu_writer.hpp"

namespace tessera::kit {

bool KernelWriter::through_half(uint32_t id) const {
  const Inst& x = k_.insts[id];
  if (x.op != Op::Convert || x.type != Type::F32) return false;
  const Inst& half = k_.insts[x.args[0]];
  return half.op == Op::Convert && (half.type == Type::BF16 || half.type == Type::F16) &&
         k_.insts[half.args[0]].type == Type::F32;
}

// Arithmetic gives the NaN of an operand, or the machine's own, whose lower bits are zeros.
void KernelWriter::find_halves() {
  short_nan_.assign(k_.insts.size(), 0);
  stays_half_.assign(k_.insts.size(), 0);
  // A NaN keeps its sign and its upper bits then, which nothing sees but its bits.
  const bool seen = std::any_of(k_.insts.begin(), k_.insts.end(), [](const Inst& x) { return x.op == Op::Bitcast; });
  for (uint32_t id = 0; id < k_.insts.size(); ++id) {
    const Inst& x = k_.insts[id];
    for (const uint32_t a : x.args)
      if (a != kNone && (x.op != Op::Convert || x.type != Type::F32)) stays_half_[a] = 1;
    if (x.type != Type::F32 || seen) continue;
    const auto operands = [&] {
      return std::all_of(x.args.begin(), x.args.end(),
                         [&](uint32_t a) { return a == kNone || k_.insts[a].type != Type::F32 || short_nan_[a]; });
    };
    switch (x.op) {
      case Op::Const: short_nan_[id] = !std::isnan(constant_float(x.type, x.bits)); break;
      case Op::Convert: {
        const Type from = k_.insts[x.args[0]].type;
        short_nan_[id] = from == Type::BF16 || !is_float(from);
        break;
      }
      case Op::Neg:
      case Op::Abs:
      case Op::Sqrt:
      case Op::Floor:
      case Op::Ceil:
      case Op::Trunc:
      case Op::Round:
      case Op::Add:
      case Op::Sub:
      case Op::Mul:
      case Op::Div:
      case Op::Fma:
      case Op::Select: short_nan_[id] = operands(); break;
      case Op::Reduce: short_nan_[id] = kind(x) <= ReduceKind::MaxNumber && operands(); break;
      default: break;
    }
  }
}

std::string KernelWriter::rounded_half(uint32_t id, int lanes) {
  const uint32_t half = k_.insts[id].args[0], from = k_.insts[half].args[0];
  if (stays_half_[half]) return {};  // it is narrowed anyway
  return d_.rounded(k_.insts[half].type, lanes, ref(from, lanes), short_nan_[from] != 0, m_.needs_);
}

}  // namespace tessera::kit
