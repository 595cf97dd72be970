// SPDX-License-Identifier: Apache-2.0
// Unary and binary ops, select and clamp: which tile function, with which parameters.
#include "elementwise_ops.hpp"

#include "elementwise.hpp"
#include "tessera/dtypes.hpp"

namespace eager {

namespace {

TileOp tile_op(const Build& b, Op op, uint32_t dtype, int inputs, bool splat) {
  TileOp t;
  t.fn = find_tile(*b.isa, op, comp_of(dtype));
  if (!t.fn) fail("TSR-B032", "op '" + b.op() + "' does not exist for dtype " + std::string(tessera::dtype_name(dtype)));
  t.num_inputs = inputs;
  t.splat = splat;
  // Integer ops need the width of the type they stand for: shifts, popcount, wrapping divisions.
  t.params[3] = tessera::dtype_bits(dtype);
  return t;
}

// Is the function so dear that 16 K elements are worth several tasks?
bool dear(Op op) {
  return (op >= Op::Exp && op <= Op::Sigmoid && op != Op::Sqrt && op != Op::Reciprocal) ||
         (op >= Op::Elu && op <= Op::Softplus);
}

}  // namespace

KernelPtr make_unary(const Build& b, int op_index) {
  const Op op = static_cast<Op>(op_index);
  TileOp t = tile_op(b, op, b.operand(0).dtype(), 1, false);
  if (dear(op)) t.grain = kGrain / 4;
  return make_overwriting_kernel(b, [t, isa = b.isa](const tsr_launch& l) {
    const tsr_tensor* in[] = {&l.inputs[0]};
    run_elementwise(*isa, t, in, l.outputs[0]);
  });
}

KernelPtr make_activation(const Build& b, int op_index) {
  Op op = static_cast<Op>(op_index);
  if (op == Op::Gelu && b.text("approximate") == "tanh") op = Op::GeluTanh;
  TileOp t = tile_op(b, op, b.operand(0).dtype(), 1, false);
  t.grain = kGrain / 4;
  switch (op) {
    case Op::LeakyRelu: t.params[0] = b.number("slope"); break;
    case Op::Elu:
    case Op::Celu: t.params[0] = b.number("alpha"); break;
    case Op::Softplus:
      t.params[0] = b.number("beta");
      t.params[1] = b.number("threshold");
      break;
    case Op::HardSigmoid:
      t.params[0] = b.number("alpha");
      t.params[1] = b.number("beta");
      break;
    default: break;
  }
  return make_overwriting_kernel(b, [t, isa = b.isa](const tsr_launch& l) {
    const tsr_tensor* in[] = {&l.inputs[0]};
    run_elementwise(*isa, t, in, l.outputs[0]);
  });
}

KernelPtr make_binary(const Build& b, int op_index) {
  const Op op = static_cast<Op>(op_index);
  const uint32_t dtype = b.operand(0).dtype();
  TileOp t = tile_op(b, op, dtype, 2, true);
  // The neighbour of an f16 or bf16 value is one of that type, not of f32.
  t.params[0] = dtype;
  if (op >= Op::FloorDiv && op <= Op::Nextafter && op != Op::Copysign) t.grain = kGrain / 4;
  // A division that fails must leave its operands alone: a state may live in one of them.
  if (tessera::is_int(dtype) && op >= Op::Div && op <= Op::Fmod)
    return make_kernel(b, [t, isa = b.isa, name = b.op()](const tsr_launch& l) {
      const tsr_tensor* in[] = {&l.inputs[0], &l.inputs[1]};
      if (run_elementwise(*isa, t, in, l.outputs[0]) & kDivByZero) fail_division(name);
    });
  return make_overwriting_kernel(b, [t, isa = b.isa](const tsr_launch& l) {
    const tsr_tensor* in[] = {&l.inputs[0], &l.inputs[1]};
    run_elementwise(*isa, t, in, l.outputs[0]);
  });
}

KernelPtr make_select(const Build& b, int) {
  TileOp t = tile_op(b, Op::Select, b.operand(1).dtype(), 3, false);
  return make_overwriting_kernel(b, [t, isa = b.isa](const tsr_launch& l) {
    const tsr_tensor* in[] = {&l.inputs[0], &l.inputs[1], &l.inputs[2]};
    run_elementwise(*isa, t, in, l.outputs[0]);
  });
}

KernelPtr make_clamp(const Build& b, int) {
  const bool lo = b.has(1), hi = b.has(2);
  const uint32_t dtype = b.operand(0).dtype();
  TileOp t = lo && hi ? tile_op(b, Op::Clamp, dtype, 3, false)
                      : tile_op(b,
                                lo   ? Op::ClampLo
                                : hi ? Op::ClampHi
                                     : Op::Select,
                                dtype, 2, true);
  if (!lo && !hi) {  // nothing to clamp with: a copy, as the maximum of x with itself
    t = tile_op(b, Op::Maximum, dtype, 2, true);
    return make_overwriting_kernel(b, [t, isa = b.isa](const tsr_launch& l) {
      const tsr_tensor* in[] = {&l.inputs[0], &l.inputs[0]};
      run_elementwise(*isa, t, in, l.outputs[0]);
    });
  }
  return make_overwriting_kernel(b, [t, lo, isa = b.isa](const tsr_launch& l) {
    const tsr_tensor* in[] = {&l.inputs[0], &l.inputs[lo ? 1 : 2], &l.inputs[l.num_inputs > 2 ? 2 : 1]};
    run_elementwise(*isa, t, in, l.outputs[0]);
  });
}

}  // namespace eager
