// SPDX-License-Identifier: Apache-2.0
// The second walk, value by value: instructions for a tensor at a position.
#include <algorithm>

#include "lowering.hpp"

namespace tessera::kit {

std::optional<Ex> Lowering::known_power(const Tensor& t, const std::vector<Ex>& args) const {
  if (t.op != "pow") return std::nullopt;
  const Tensor& exponent = table_.at(t.operands[1]);
  if (exponent.kind != Kind::Constant) return std::nullopt;
  const double e = constant_float(type_of(exponent.dtype), exponent.bits);
  if (e == 2) return args[0] * args[0];
  if (e == 3 && args[0].type() == Type::F32) return call("cube_f32", args[0]);
  return std::nullopt;
}

uint32_t Lowering::eval(int id, const Position& at, uint32_t guard) {
  const auto key = std::make_tuple(id, at, guard);
  if (const auto it = known_.find(key); it != known_.end()) return it->second;
  if (const auto it = in_loop_.find(key); it != in_loop_.end()) return it->second;
  if (k_.insts.size() > kMaxInsts) unfit("it is too large");
  const auto kept = guard == kNone ? kept_.find({id, at}) : kept_.end();
  uint32_t v = kNone;
  if (kept != kept_.end() && kept->second.done) {
    b_->set_origin(table_.at(id).origin);
    v = b_->load(kept->second.buffer, type_of(table_.at(id).dtype), kept->second.index);
  } else {
    v = compute(id, at, guard);
    if (kept != kept_.end() && b_->depth(v) > 0) {
      b_->store(kept->second.buffer, kept->second.index, v);
      now_kept_.push_back({id, at});
    }
  }
  (b_->depth(v) == 0 ? known_ : in_loop_).emplace(key, v);
  return v;
}

uint32_t Lowering::both(uint32_t a, uint32_t b) { return a == kNone ? b : b == kNone ? a : b_->binary(Op::And, a, b); }

uint32_t Lowering::inside(Expr x, Expr size) {
  uint32_t c = kNone;
  if (!pool_.nonnegative(x)) c = b_->binary(Op::Ge, b_->index(x), b_->constant(Type::I64, int64_t{0}));
  if (!pool_.less(x, size)) c = both(c, b_->binary(Op::Lt, b_->index(x), b_->index(size)));
  return c;
}

int64_t Lowering::signed_bits(const Inst& c) {
  const int unused = 64 - 8 * type_bytes(c.type);
  return static_cast<int64_t>(c.bits << unused) >> unused;
}

uint32_t Lowering::checked_index(int from, const Position& at, Expr size, uint32_t guard, uint32_t origin, uint32_t* in) {
  Builder& b = *b_;
  const uint32_t raw = eval(from, at, guard);
  b.set_origin(origin);
  const uint32_t i = b.convert(raw, Type::I64), zero = b.constant(Type::I64, int64_t{0});
  *in = b.binary(Op::And, b.binary(Op::Ge, i, zero), b.binary(Op::Lt, i, b.index(size)));
  b.check(guard == kNone ? *in : b.binary(Op::Or, *in, b.unary(Op::Not, guard)), kFaultIndex);
  return b.select(*in, i, zero);
}

uint32_t Lowering::compute_window(const Tensor& t, const Position& at, uint32_t guard) {
  Builder& b = *b_;
  b.set_origin(t.origin);
  const Reading r = t.read(pool_, at);
  uint32_t in = kNone;
  for (size_t d = 0; d < r.at.size() && !r.inside; ++d) in = both(in, inside(r.at[d], table_.at(t.operands[0]).shape[d]));
  for (const Expr e : r.zeros)
    if (e != kZero) in = both(in, b.binary(Op::Eq, b.index(e), b.constant(Type::I64, int64_t{0})));
  for (const auto& [x, y] : r.below)
    if (!pool_.less(x, y)) in = both(in, b.binary(Op::Lt, b.index(x), b.index(y)));
  const uint32_t v = eval(t.operands[0], r.at, both(guard, in));
  if (in == kNone) return v;
  const uint32_t fill = eval(t.operands[1], {}, guard);
  b.set_origin(t.origin);
  return b.select(in, v, fill);
}

uint32_t Lowering::compute_gather_nd(const Tensor& t, const Position& at, uint32_t guard) {
  std::vector<Expr> indices;
  uint32_t all = kNone;
  for (const Position& p : tuple_of(t, at)) {
    uint32_t in = kNone;
    const Expr size = table_.at(t.operands[0]).shape[t.number + indices.size()];
    indices.push_back(pool_.value(checked_index(t.operands[1], p, size, guard, t.origin, &in)));
    all = both(all, in);
  }
  // Of an operand without elements nothing can be read.
  const Expr elements = pool_.product(table_.at(t.operands[0]).shape);
  const bool some = pool_.nonnegative(pool_.sub(elements, kOne));
  return eval(t.operands[0], gathered_nd(t, at, indices), some ? guard : both(guard, all));
}

// Every start is clamped so that the block lies inside.
uint32_t Lowering::compute_dynamic(const Tensor& t, const Position& at, uint32_t guard) {
  Builder& b = *b_;
  const bool update = t.kind == Kind::DynamicUpdate;
  const auto& whole = table_.at(t.operands[0]).shape;
  const auto& block = update ? table_.at(t.operands[1]).shape : t.shape;
  Position p = at;
  for (size_t d = 0; d < at.size(); ++d) {
    const uint32_t raw = eval(t.operands[d + (update ? 2 : 1)], {}, guard);
    b.set_origin(t.origin);
    uint32_t start = b.convert(raw, Type::I64);
    const uint32_t zero = b.constant(Type::I64, int64_t{0}), last = b.index(pool_.max(pool_.sub(whole[d], block[d]), kZero));
    if (b.inst(raw).type == Type::U64)  // beyond the range of an i64 is beyond the end
      start = b.select(b.binary(Op::Lt, start, zero), last, start);
    start = b.select(b.binary(Op::Gt, start, zero), start, zero);
    start = b.select(b.binary(Op::Lt, start, last), start, last);
    p[d] = update ? pool_.sub(p[d], pool_.value(start)) : pool_.add(p[d], pool_.value(start));
  }
  if (!update) return eval(t.operands[0], p, guard);
  uint32_t in = kNone;
  for (size_t d = 0; d < p.size(); ++d) in = both(in, inside(p[d], block[d]));
  const uint32_t v = eval(t.operands[1], p, both(guard, in));
  if (in == kNone) return v;
  const uint32_t old = eval(t.operands[0], at, guard);
  b.set_origin(t.origin);
  return b.select(in, v, old);
}

uint32_t Lowering::compute(int id, const Position& at, uint32_t guard) {
  const Tensor t = table_.at(id);
  const Type type = type_of(t.dtype);
  Builder& b = *b_;
  const auto origin = [&] { b.set_origin(t.origin); };
  switch (t.kind) {
    case Kind::Input: {
      // A dimension of size 1 is read at 0 whatever the position.
      Position p = at;
      for (size_t d = 0; d < p.size(); ++d)
        if (t.shape[d] == kOne) p[d] = kZero;
      const Expr where = pool_.linear(p, t.shape);
      origin();
      return guard == kNone ? b.load(t.number, type, where) : b.load(t.number, type, where, guard, b.constant_of_bits(type, 0));
    }
    case Kind::Constant: return b.constant_of_bits(type, t.bits);
    case Kind::Iota: origin(); return b.index(t.shape.empty() ? kZero : at[t.number]);
    case Kind::Size: origin(); return b.index(t.size);
    case Kind::Cast: {
      const int x = t.operands[0];
      const uint32_t v = eval(x, at, guard);
      origin();
      return compute_cast({&b, v}, table_.at(x).dtype, t.dtype).v;
    }
    case Kind::Elementwise: {
      std::vector<uint32_t> values;
      for (const int x : t.operands) values.push_back(eval(x, broadcast(at, table_.at(x)), guard));
      origin();
      std::vector<Ex> args;
      for (const uint32_t v : values) args.push_back({&b, b.convert(v, compute_type(b.type_of(v)))});
      if (const auto v = known_power(t, args)) return b.convert(v->v, type);
      const Computed c = compute_elementwise(t.op, table_.at(t.operands.back()).dtype, args, t.params);
      return b.convert(c.value.v, type, c.exact);
    }
    case Kind::View: return eval(t.operands[0], through_view(t, at), guard);
    case Kind::Concat: {
      Position p = at;
      std::vector<std::pair<uint32_t, uint32_t>> parts;  // below the end of a part, its value
      for (const int x : t.operands) {
        const Expr size = table_.at(x).shape[t.number];
        const bool before = pool_.nonnegative(pool_.sub(p[t.number], size));
        if (!before) {
          const uint32_t in = inside(p[t.number], size);
          const uint32_t v = eval(x, p, both(guard, in));
          origin();
          const uint32_t below = pool_.less(p[t.number], size) ? kNone : b.binary(Op::Lt, b.index(p[t.number]), b.index(size));
          parts.emplace_back(below, v);
          if (below == kNone) break;
        }
        p[t.number] = pool_.sub(p[t.number], size);
      }
      if (parts.empty()) return b.constant_of_bits(type, 0);  // of nothing but empty tensors
      uint32_t v = parts.back().second;
      for (size_t i = parts.size() - 1; i-- > 0;) v = b.select(parts[i].first, parts[i].second, v);
      return v;
    }
    case Kind::Pad: {
      Position p;
      uint32_t in = kNone;
      origin();
      for (size_t d = 0; d < at.size(); ++d) {
        p.push_back(pool_.sub(at[d], t.starts[d]));
        in = both(in, inside(p[d], table_.at(t.operands[0]).shape[d]));
      }
      const uint32_t v = eval(t.operands[0], p, both(guard, in));
      const uint32_t fill = eval(t.operands[1], {}, guard);
      return in == kNone ? v : b.select(in, v, fill);
    }
    case Kind::Gather: {
      const uint32_t raw = eval(t.operands[1], gather_index(t, at), guard);
      origin();
      // A constant index that is certainly inside is a slice.
      if (const Inst& c = b.inst(raw); c.op == Op::Const && is_integer(c.type)) {
        const int64_t n = is_unsigned(c.type) ? static_cast<int64_t>(c.bits) : signed_bits(c);
        const Expr at_n = pool_.number(n);
        if (n >= 0 && pool_.less(at_n, table_.at(t.operands[0]).shape[t.number]))
          return eval(t.operands[0], gathered(t, at, at_n), guard);
      }
      uint32_t in = kNone;
      const uint32_t safe =
          checked_index(t.operands[1], gather_index(t, at), table_.at(t.operands[0]).shape[t.number], guard, t.origin, &in);
      // Of an operand without elements nothing can be read.
      uint32_t readable = guard;
      const Expr elements = pool_.product(table_.at(t.operands[0]).shape);
      if (!pool_.nonnegative(pool_.sub(elements, kOne))) readable = both(guard, in);
      return eval(t.operands[0], gathered(t, at, pool_.value(safe)), readable);
    }
    case Kind::Window: return compute_window(t, at, guard);
    case Kind::GatherNd: return compute_gather_nd(t, at, guard);
    case Kind::DynamicSlice:
    case Kind::DynamicUpdate: return compute_dynamic(t, at, guard);
    case Kind::Reduce: {
      for (const Demand& d : demands_)
        if (d.reduction == id && d.at == at && d.value != kNone) {
          origin();
          uint32_t v = d.value;
          // The extreme of nothing is that of the dtype, not of the compute type.
          const Type wide = b.type_of(v);
          const bool extreme = t.reduce == ReduceKind::Max || t.reduce == ReduceKind::Min;
          if (extreme && wide != type && is_integer(type)) {
            const int bits = type_bytes(type) * 8;
            const bool sign = is_signed(type), low = t.reduce == ReduceKind::Max;
            const int64_t least = sign ? -(int64_t{1} << (bits - 1)) : 0, most = (int64_t{1} << (sign ? bits - 1 : bits)) - 1;
            const uint32_t bound = b.constant(wide, low ? least : most);
            v = b.select(b.binary(low ? Op::Gt : Op::Lt, v, bound), v, bound);
          }
          return b.convert(v, type, extreme);
        }
      throw sdk::Error(TSR_BUG, "TSR-K004", "kernel @" + k_.name + ": a reduction is used before it is computed");
    }
  }
  return kNone;
}

}  // namespace tessera::kit
