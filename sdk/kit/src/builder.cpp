// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/builder.hpp"

#include <algorithm>
#include <cmath>

namespace tessera::kit {

void Builder::begin_loop(std::vector<uint32_t> axes, bool across) {
  across_ = across;
  loop_body_.clear();
  open(&loop_body_, std::move(axes));
}

void Builder::end_loop() {
  Loop loop{scopes_.back().axes, std::move(loop_body_), across_};
  scopes_.pop_back();
  // Results of reductions exist from here on.
  for (const Item& i : loop.body)
    if (!i.is_loop && ((*insts_)[i.id].op == Op::Reduce)) depth_[i.id] = 0;
  kernel_->loops.push_back(std::move(loop));
  scopes_.back().body->push_back({true, static_cast<uint32_t>(kernel_->loops.size() - 1)});
  loop_body_.clear();
}

uint32_t Builder::place(const Inst& inst) const {
  const auto inner = static_cast<uint32_t>(scopes_.size() - 1);
  if (inner == 0) return 0;
  // A check of a loop without points must not be made.
  if (inst.op == Op::Reduce || inst.op == Op::Store || inst.op == Op::Check) return inner;
  uint32_t d = 0;
  for (const uint32_t a : inst.args)
    if (a != kNone) d = std::max(d, depth_[a]);
  if (inst.op == Op::Index || inst.op == Op::Load) {
    for (const uint32_t axis : scopes_.back().axes)
      if (pool_->uses(inst.index, AtomKind::Axis, axis)) return inner;
    std::vector<uint32_t> values;
    pool_->collect(inst.index, AtomKind::Value, values);
    for (const uint32_t v : values) d = std::max(d, depth_[v]);
  }
  return std::min(d, inner);
}

uint32_t Builder::emit(Inst inst) {
  const uint32_t at = place(inst);
  const Key key{static_cast<uint8_t>(inst.op),
                static_cast<uint8_t>(inst.type),
                inst.exact,
                inst.args[0],
                inst.args[1],
                inst.args[2],
                inst.bits,
                inst.index,
                inst.id};
  if (inst.op != Op::Store)
    if (const auto it = scopes_[at].known.find(key); it != scopes_[at].known.end()) return it->second;
  inst.origin = origin_;
  const auto id = static_cast<uint32_t>(insts_->size());
  insts_->push_back(inst);
  depth_.push_back(at);
  if (pool_) ranges_.push_back(range_of(inst, *insts_, ranges_));
  if (scopes_[at].body) scopes_[at].body->push_back({false, id});
  scopes_[at].known.emplace(key, id);
  return id;
}

uint32_t Builder::constant_of_bits(Type t, uint64_t bits) {
  Inst i;
  i.op = Op::Const;
  i.type = t;
  i.bits = bits;
  return emit(i);
}
uint32_t Builder::constant(Type t, double x) { return constant_of_bits(t, constant_bits(t, x)); }
uint32_t Builder::constant(Type t, int64_t x) { return constant_of_bits(t, constant_bits(t, x)); }

uint32_t Builder::index(Expr e) {
  if (const auto n = pool_->as_number(e)) return constant(Type::I64, *n);
  Inst i;
  i.op = Op::Index;
  i.type = Type::I64;
  i.index = e;
  return emit(i);
}

uint32_t Builder::load(uint32_t buffer, Type t, Expr at, uint32_t predicate, uint32_t otherwise) {
  Inst i;
  i.op = Op::Load;
  i.type = t;
  i.index = at;
  i.id = buffer;
  i.args = {predicate, otherwise, kNone};
  return emit(i);
}

uint32_t Builder::unary(Op op, uint32_t a) {
  if (op == Op::Not && pool_ && (is_known(a, true) || is_known(a, false))) return boolean(is_known(a, false));
  Inst i;
  i.op = op;
  i.type = type_of(a);
  i.args[0] = a;
  return emit(i);
}

uint32_t Builder::binary(Op op, uint32_t a, uint32_t b) {
  if (pool_ && is_compare(op))
    if (const auto always = decided(op, ranges_[a], ranges_[b], a == b)) return boolean(*always);
  if (pool_ && (op == Op::And || op == Op::Or) && type_of(a) == Type::Bool) {
    const bool absorbs = op == Op::Or;  // true or x is true; true and x is x
    if (is_known(a, absorbs) || is_known(b, !absorbs)) return a;
    if (is_known(b, absorbs) || is_known(a, !absorbs)) return b;
  }
  Inst i;
  i.op = op;
  i.type = is_compare(op) ? Type::Bool : type_of(a);
  i.args = {a, b, kNone};
  return emit(i);
}

uint32_t Builder::select(uint32_t c, uint32_t a, uint32_t b) {
  if (a == b) return a;
  if (inst(c).op == Op::Const) return inst(c).bits ? a : b;
  // NaN, where what is chosen otherwise is NaN there too: an order with NaN does not hold.
  if (const Inst& nan = inst(c); pool_ && nan.op == Op::Ne && nan.args[0] == nan.args[1] && nan.args[0] == a)
    if (const Inst& s = inst(b); s.op == Op::Select && s.args[2] == a) {
      const Inst& order = inst(s.args[0]);
      if (order.op >= Op::Lt && order.op <= Op::Ge && (order.args[0] == a || order.args[1] == a)) return b;
    }
  Inst i;
  i.op = Op::Select;
  i.type = type_of(a);
  i.args = {c, a, b};
  return emit(i);
}

uint32_t Builder::fma(uint32_t a, uint32_t b, uint32_t c) {
  Inst i;
  i.op = Op::Fma;
  i.type = type_of(a);
  i.args = {a, b, c};
  return emit(i);
}

uint32_t Builder::convert(uint32_t a, Type to, bool exact) {
  const Inst& x = inst(a);
  if (x.type == to) return a;
  // Narrowing what was just widened gives it back.
  if (x.op == Op::Convert && type_of(x.args[0]) == to && compute_type(to) == x.type) return x.args[0];
  // Widening gives back an integer that was narrowed and did not change.
  if (pool_ && x.op == Op::Convert && type_of(x.args[0]) == to && is_integer(to) && is_integer(x.type)) {
    const Range &r = ranges_[x.args[0]], &narrow = ranges_[a];
    if (r.lo == narrow.lo && r.hi == narrow.hi && std::isfinite(r.lo) && std::isfinite(r.hi)) return x.args[0];
  }
  Inst i;
  i.op = Op::Convert;
  i.type = to;
  i.exact = exact;
  i.args[0] = a;
  return emit(i);
}

uint32_t Builder::bitcast(uint32_t a, Type to) {
  if (type_of(a) == to) return a;
  Inst i;
  i.op = Op::Bitcast;
  i.type = to;
  i.args[0] = a;
  return emit(i);
}

uint32_t Builder::lookup(std::string_view name, uint32_t index) {
  Inst i;
  i.op = Op::Lookup;
  i.id = table_named(name);
  i.type = Type::F32;
  i.args[0] = index;
  return emit(i);
}

uint32_t Builder::call(std::string_view name, std::initializer_list<uint32_t> args) {
  Inst i;
  i.op = Op::Call;
  i.id = function_named(name);
  i.type = function(i.id).result;
  std::copy(args.begin(), args.end(), i.args.begin());
  return emit(i);
}

uint32_t Builder::reduce(ReduceKind kind, uint32_t a, uint32_t b) {
  Inst i;
  i.op = Op::Reduce;
  i.type = kind == ReduceKind::ArgMax || kind == ReduceKind::ArgMin ? Type::I64 : type_of(a);
  i.id = static_cast<uint32_t>(kind);
  i.args = {a, b, kNone};
  return emit(i);
}

uint32_t Builder::second(uint32_t reduction) {
  Inst i;
  i.op = Op::Second;
  i.type = type_of(inst(reduction).args[0]);
  i.args[0] = reduction;
  return emit(i);
}

void Builder::store(uint32_t buffer, Expr at, uint32_t value, uint32_t predicate) {
  Inst i;
  i.op = Op::Store;
  i.index = at;
  i.id = buffer;
  i.args = {value, predicate, kNone};
  emit(i);
}

void Builder::check(uint32_t holds, uint32_t fault) {
  if (pool_ && is_known(holds, true)) return;
  Inst i;
  i.op = Op::Check;
  i.id = fault;
  i.args[0] = holds;
  emit(i);
}

}  // namespace tessera::kit
