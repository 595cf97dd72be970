// SPDX-License-Identifier: Apache-2.0
#include "build.hpp"

#include <algorithm>

#include "tessera/plugin.hpp"

namespace tessera::kit {

void no_program(const std::string& why) {
  throw sdk::Error(TSR_BUG, "TSR-K041", "no program of the SIMT family computes this kernel: " + why);
}

ProgramBuilder::ProgramBuilder(std::string name, const GpuDescription& device) {
  p.name = std::move(name);
  p.wave = device.wave;
}

uint32_t ProgramBuilder::add(Statement s) {
  p.statements.push_back(std::move(s));
  const auto id = static_cast<uint32_t>(p.statements.size() - 1);
  open_.back().body.push_back(id);
  return id;
}
void ProgramBuilder::begin_launch() {
  p.launches.emplace_back();
  open_.push_back({kNone, {}});
}
void ProgramBuilder::end_launch() {
  p.launches.back() = std::move(open_.back().body);
  open_.pop_back();
}
Expr ProgramBuilder::begin(Bind bind, const char* prefix, Expr extent) {
  Statement s;
  s.kind = StatementKind::Loop;
  s.bind = bind;
  std::string name;
  do {
    name = prefix + std::to_string(names_[prefix]++);
  } while (std::any_of(p.symbols.begin(), p.symbols.end(), [&](const ProgramSymbol& x) { return x.name == name; }) ||
           std::any_of(p.buffers.begin(), p.buffers.end(), [&](const ProgramBuffer& x) { return x.name == name; }));
  s.axis = p.add_axis(name, extent);
  const Expr axis = pool().axis(s.axis);
  open_.push_back({add(std::move(s)), {}});
  return axis;
}
void ProgramBuilder::end() {
  const Open o = std::move(open_.back());
  open_.pop_back();
  p.statements[o.id].body = o.body;
}
Expr ProgramBuilder::begin_unless_one(Bind bind, const char* prefix, Expr extent) {
  if (extent != kOne) return begin(bind, prefix, extent);
  open_.push_back({kNone, {}});
  return kZero;
}
void ProgramBuilder::end_unless_one() {
  if (open_.back().id != kNone) return end();
  std::vector<uint32_t> body = std::move(open_.back().body);
  open_.pop_back();
  open_.back().body.insert(open_.back().body.end(), body.begin(), body.end());
}
bool ProgramBuilder::begin_if(uint32_t condition) {
  if (condition == kNone) return false;
  Statement s;
  s.kind = StatementKind::If;
  s.inst.args[0] = condition;
  open_.push_back({add(std::move(s)), {}});
  return true;
}
void ProgramBuilder::end_if(bool opened) {
  if (opened) end();
}
void ProgramBuilder::barrier(BarrierScope scope) {
  Statement s;
  s.kind = StatementKind::Barrier;
  s.scope = scope;
  add(std::move(s));
}

uint32_t ProgramBuilder::buffer(const std::string& name, Memory memory, Type type, Expr extent, Access access, int64_t align) {
  ProgramBuffer b;
  const auto taken = [&](const std::string& n) {
    return std::any_of(p.buffers.begin(), p.buffers.end(), [&](const ProgramBuffer& x) { return x.name == n; }) ||
           std::find(p.axis_names.begin(), p.axis_names.end(), n) != p.axis_names.end();
  };
  b.name = name;
  for (int i = 1; taken(b.name); ++i) b.name = name + "_" + std::to_string(i);
  b.memory = memory;
  b.type = type;
  b.extent = extent;
  b.access = access;
  b.align = align;
  b.launch = memory >= Memory::Shared ? static_cast<uint32_t>(p.launches.size() - 1) : 0;
  p.buffers.push_back(std::move(b));
  return static_cast<uint32_t>(p.buffers.size() - 1);
}

uint32_t ProgramBuilder::inst(const Inst& x) {
  Statement s;
  s.inst = x;
  return add(std::move(s));
}
uint32_t ProgramBuilder::constant(Type t, uint64_t bits) {
  Inst x;
  x.op = Op::Const;
  x.type = t;
  x.bits = bits;
  return inst(x);
}
uint32_t ProgramBuilder::index(Expr e) {
  Inst x;
  x.op = Op::Index;
  x.type = Type::I64;
  x.index = e;
  return inst(x);
}
uint32_t ProgramBuilder::unary(Op op, uint32_t a) {
  Inst x;
  x.op = op;
  x.type = type_of(a);
  x.args[0] = a;
  return inst(x);
}
uint32_t ProgramBuilder::binary(Op op, uint32_t a, uint32_t b) {
  Inst x;
  x.op = op;
  x.type = is_compare(op) ? Type::Bool : type_of(a);
  x.args = {a, b, kNone};
  return inst(x);
}
uint32_t ProgramBuilder::select(uint32_t c, uint32_t a, uint32_t b) {
  Inst x;
  x.op = Op::Select;
  x.type = type_of(a);
  x.args = {c, a, b};
  return inst(x);
}
uint32_t ProgramBuilder::multiply_add(uint32_t a, uint32_t b, uint32_t sum) {
  if (!is_float(type_of(a))) return binary(Op::Add, sum, binary(Op::Mul, a, b));
  Inst x;
  x.op = Op::Fma;
  x.type = type_of(a);
  x.args = {a, b, sum};
  return inst(x);
}
uint32_t ProgramBuilder::load(uint32_t buffer, Expr at) { return load_or(buffer, at, kNone, kNone); }
uint32_t ProgramBuilder::load_or(uint32_t buffer, Expr at, uint32_t condition, uint32_t otherwise) {
  Inst x;
  x.op = Op::Load;
  x.type = p.buffers[buffer].type;
  x.id = buffer;
  x.index = at;
  if (condition != kNone) x.args = {condition, otherwise, kNone};
  return inst(x);
}
void ProgramBuilder::store(uint32_t buffer, Expr at, uint32_t value) {
  Inst x;
  x.op = Op::Store;
  x.id = buffer;
  x.index = at;
  x.args[0] = value;
  inst(x);
}
uint32_t ProgramBuilder::shuffle_xor(uint32_t v, int64_t bits) {
  Statement s;
  s.kind = StatementKind::Shuffle;
  s.inst.type = type_of(v);
  s.inst.args[0] = v;
  s.lane = bits;
  return add(std::move(s));
}
uint32_t ProgramBuilder::shuffle_from(uint32_t v, int64_t lane, int64_t lanes) {
  Statement s;
  s.kind = StatementKind::Shuffle;
  s.inst.type = type_of(v);
  s.inst.args[0] = v;
  s.exchange = Exchange::From;
  s.lane = lane;
  s.lanes = lanes;
  return add(std::move(s));
}
void ProgramBuilder::mma(Type factors, Fragment sums, Fragment left, Fragment right) {
  Statement s;
  s.kind = StatementKind::Mma;
  s.inst.type = factors;
  s.fragments = {sums, left, right};
  add(std::move(s));
}
void ProgramBuilder::mma_group(Type factors, Fragment sums, Fragment left, Fragment right, const GroupShape& shape) {
  Statement s;
  s.kind = StatementKind::MmaGroup;
  s.inst.type = factors;
  s.fragments = {sums, left, right};
  s.group = shape;
  add(std::move(s));
}
void ProgramBuilder::mma_wait(Fragment sums, int64_t columns) {
  Statement s;
  s.kind = StatementKind::MmaWait;
  s.fragments[0] = sums;
  s.group.columns = columns;
  add(std::move(s));
}
void ProgramBuilder::copy(Fragment to, Fragment from, int64_t n, uint32_t condition) {
  Statement s;
  s.kind = StatementKind::Copy;
  s.fragments = {to, from, {}};
  s.inst.args[0] = condition;
  s.count = n;
  add(std::move(s));
}
void ProgramBuilder::copy_end() {
  Statement s;
  s.kind = StatementKind::CopyEnd;
  add(std::move(s));
}
void ProgramBuilder::copy_wait(int64_t but) {
  Statement s;
  s.kind = StatementKind::CopyWait;
  s.count = but;
  add(std::move(s));
}
uint32_t ProgramBuilder::below(Expr e, Expr n) { return pool().less(e, n) ? kNone : binary(Op::Lt, index(e), index(n)); }
uint32_t ProgramBuilder::both(uint32_t a, uint32_t b) { return a == kNone ? b : b == kNone ? a : binary(Op::And, a, b); }

uint32_t ProgramBuilder::combine(const Reducer& r, uint32_t a, uint32_t b) {
  switch (r.kind) {
    case ReduceKind::Prod: return binary(Op::Mul, a, b);
    case ReduceKind::Any: return binary(Op::Or, a, b);
    case ReduceKind::All: return binary(Op::And, a, b);
    case ReduceKind::MaxNumber: return select(binary(Op::Gt, b, a), b, a);
    case ReduceKind::Max:
    case ReduceKind::Min: {
      uint32_t first = binary(r.kind == ReduceKind::Max ? Op::Gt : Op::Lt, a, b);
      if (is_float(r.type)) first = binary(Op::Or, binary(Op::Ne, a, a), first);
      return select(first, a, b);
    }
    default: return binary(Op::Add, a, b);
  }
}
uint32_t ProgramBuilder::comes_first(const Reducer& r, uint32_t a, uint32_t at, uint32_t b, uint32_t other) {
  const auto both_of = [&](uint32_t x, uint32_t y) { return binary(Op::And, x, y); };
  const auto either = [&](uint32_t x, uint32_t y) { return binary(Op::Or, x, y); };
  const uint32_t zero = constant(Type::I64, 0);
  uint32_t more = binary(r.kind == ReduceKind::ArgMax ? Op::Gt : Op::Lt, a, b), equal = binary(Op::Eq, a, b);
  if (is_float(r.type)) {
    const uint32_t a_nan = binary(Op::Ne, a, a), b_nan = binary(Op::Ne, b, b);
    equal = either(equal, both_of(a_nan, b_nan));
    more = either(a_nan, both_of(binary(Op::Eq, b, b), more));
  }
  const uint32_t before = select(equal, binary(Op::Lt, at, other), more);
  return either(binary(Op::Lt, other, zero), both_of(binary(Op::Ge, at, zero), before));
}
uint32_t ProgramBuilder::combine_halves(const Reducer& r, uint32_t buffer, Expr at, int64_t n) {
  std::vector<uint32_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(load(buffer, pool().add(at, pool().number(i))));
  return combine_halves(r, std::move(values));
}
uint32_t ProgramBuilder::combine_halves(const Reducer& r, std::vector<uint32_t> values) {
  for (size_t w = values.size() / 2; w > 0; w /= 2)
    for (size_t j = 0; j < w; ++j) values[j] = combine(r, values[j], values[j + w]);
  return values[0];
}
uint32_t ProgramBuilder::combine_lanes(const Reducer& r, uint32_t v, int64_t lanes) {
  // A bool travels as an integer.
  const bool narrow = r.type == Type::Bool;
  const auto convert = [&](uint32_t x, Type t) {
    Inst i;
    i.op = Op::Convert;
    i.type = t;
    i.args[0] = x;
    return inst(i);
  };
  const auto moved = [&](auto move) { return narrow ? convert(move(convert(v, Type::U32)), Type::Bool) : move(v); };
  for (int64_t d = lanes / 2; d > 0; d /= 2) v = combine(r, v, moved([&](uint32_t x) { return shuffle_xor(x, d); }));
  // Lane 0 alone had its operands in the order that the family asks for; it matters where equal operands differ in bits.
  const bool ordered =
      is_float(r.type) && (r.kind == ReduceKind::Max || r.kind == ReduceKind::Min || r.kind == ReduceKind::MaxNumber);
  if (ordered && lanes > 1) v = shuffle_from(v, 0, lanes);
  return v;
}

void ProgramBuilder::move_elements(uint32_t from, Expr at, uint32_t to, Expr to_at, int64_t n, uint32_t memory,
                                   Expr memory_at) {
  const ProgramBuffer& m = p.buffers[memory];
  const int bytes = type_bytes(m.type);
  int64_t width = n;
  while (width > 1 && (width * bytes > 16 || (m.memory == Memory::Global && m.align % (width * bytes) != 0) ||
                       !p.divisible(memory_at, width) || n % width != 0))
    width /= 2;
  const Expr h = begin_unless_one(Bind::Unroll, "h", pool().number(n / width));
  const Expr v = begin_unless_one(Bind::Vector, "v", pool().number(width));
  const Expr offset = pool().add(scaled(h, width), v);
  store(to, pool().add(to_at, offset), load(from, pool().add(at, offset)));
  end_unless_one();
  end_unless_one();
}
void ProgramBuilder::load_elements(uint32_t from, Expr at, uint32_t registers, Expr to, int64_t n) {
  move_elements(from, at, registers, to, n, from, at);
}
void ProgramBuilder::store_elements(uint32_t to, Expr at, uint32_t registers, Expr from, int64_t n) {
  move_elements(registers, from, to, at, n, to, at);
}

// ---- kernels

Expr run_of(IndexPool& p, const SimtOrder& o, Expr count) {
  if (const auto n = p.as_number(count)) return p.number(o.run_of(*n));
  // One where there are that many rows, else 0.
  const auto reached = [&](int64_t n) { return p.min(kOne, p.floordiv(count, p.number(n))); };
  Expr length = p.number(o.shortest_run());
  for (int64_t n = o.shortest_run(); n < o.run; n *= 2)
    length = p.add(length, p.mul(p.number(n), reached(2 * n * SimtOrder::kRuns)));
  const Expr one_block = p.sub(kOne, reached(o.run * o.fan + 1));
  return p.add(length, p.mul(p.number(o.run - o.shortest_run()), one_block));
}

Reducer reducer_of(const Kernel& k, uint32_t reduce) {
  const Inst& x = k.insts[reduce];
  return {static_cast<ReduceKind>(x.id), k.insts[x.args[0]].type};
}
bool plain_reduction(const Kernel& k, uint32_t reduce) {
  return static_cast<ReduceKind>(k.insts[reduce].id) <= ReduceKind::All;
}

Expr moved(const IndexPool& from, Expr e, IndexPool& to, const std::function<Expr(const Atom&)>& leaf) {
  Expr sum = kZero;
  for (const Term& t : from.terms(e)) {
    Expr product = to.number(t.coefficient);
    for (const uint32_t id : t.atoms) {
      const Atom& a = from.atom_at(id);
      const bool leaves = a.kind <= AtomKind::Value;
      const Expr p = leaves ? kZero : moved(from, a.a, to, leaf), q = leaves ? kZero : moved(from, a.b, to, leaf);
      Expr x = kZero;
      switch (a.kind) {
        case AtomKind::FloorDiv: x = to.floordiv(p, q); break;
        case AtomKind::Mod: x = to.mod(p, q); break;
        case AtomKind::Min: x = to.min(p, q); break;
        case AtomKind::Max: x = to.max(p, q); break;
        default: x = leaf(a);
      }
      product = to.mul(product, x);
    }
    sum = to.add(sum, product);
  }
  return sum;
}

Expr KernelCopy::index(Expr e) {
  IndexPool& to = b_.pool();
  return moved(k_.pool, e, to, [&](const Atom& a) {
    if (a.kind == AtomKind::Symbol) return to.symbol(a.id);
    if (a.kind == AtomKind::Value) return to.value(values_[a.id]);
    if (!axes_[a.id]) no_program("an index mentions an axis that has no place here");
    return *axes_[a.id];
  });
}

uint32_t KernelCopy::copy(uint32_t id, uint32_t guard) {
  Inst x = k_.insts[id];
  for (uint32_t& a : x.args)
    if (a != kNone) a = values_[a];
  if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) x.index = index(x.index);
  if (x.op == Op::Load || x.op == Op::Store) x.id = buffers_[x.id];
  if (x.op == Op::Load && guard != kNone) {
    if (x.args[0] == kNone) x.args[1] = b_.constant(x.type, 0);
    x.args[0] = b_.both(x.args[0], guard);
  }
  if (x.origin != kNone) {
    const std::string& origin = k_.origins[x.origin];
    auto& all = b_.p.origins;
    const auto at = std::find(all.begin(), all.end(), origin);
    x.origin = static_cast<uint32_t>(at - all.begin());
    if (at == all.end()) all.push_back(origin);
  }
  if (x.op == Op::Store && x.args[1] != kNone) {
    const uint32_t condition = x.args[1];
    x.args[1] = kNone;
    b_.begin_if(condition);
    b_.inst(x);
    b_.end();
    return kNone;
  }
  return values_[id] = b_.inst(x);
}

std::vector<AxisGroup> collapse(Kernel& k, const std::vector<uint32_t>& axes) {
  std::vector<AxisGroup> groups;
  for (const uint32_t axis : axes) {
    if (k.pool.extent(axis) == kOne) {
      if (!groups.empty()) {
        groups.back().outer.push_back(axis);
        continue;
      }
    }
    bool joins = !groups.empty();
    if (joins)
      for (const Inst& x : k.insts) {
        if (x.op != Op::Load && x.op != Op::Store && x.op != Op::Index) continue;
        const auto outer = k.pool.affine(x.index, groups.back().inner), inner = k.pool.affine(x.index, axis);
        // Neither may stand inside the other's coefficient.
        joins = joins && outer && inner && outer->coefficient == k.pool.mul(inner->coefficient, k.pool.extent(axis)) &&
                !k.pool.uses(inner->coefficient, AtomKind::Axis, groups.back().inner) &&
                !k.pool.uses(outer->coefficient, AtomKind::Axis, axis);
      }
    if (!joins) {
      groups.push_back({axis, {}, k.pool.extent(axis)});
      continue;
    }
    AxisGroup& g = groups.back();
    g.outer.push_back(g.inner);
    g.inner = axis;
    g.extent = k.pool.mul(g.extent, k.pool.extent(axis));
  }
  return groups;
}

Space space_of(ProgramBuilder& b, KernelCopy& copy, Kernel& k, const std::vector<uint32_t>& axes) {
  Space out;
  out.groups = collapse(k, axes);
  for (const AxisGroup& g : out.groups) {
    for (const uint32_t outer : g.outer) copy.set_axis(outer, kZero);
    out.extents.push_back(copy.index(g.extent));
    out.points = b.pool().mul(out.points, out.extents.back());
  }
  return out;
}
void go_to(ProgramBuilder& b, KernelCopy& copy, const Space& space, Expr point) {
  if (space.groups.size() == 1) return copy.set_axis(space.groups[0].inner, point);
  if (space.groups.empty()) return;
  const std::vector<Expr> at = b.pool().position(point, space.extents);
  for (size_t g = 0; g < space.groups.size(); ++g) copy.set_axis(space.groups[g].inner, at[g]);
}

void declare_symbols(ProgramBuilder& b, const Kernel& k, const SimtAssume& assume) {
  for (size_t i = 0; i < k.symbols.size(); ++i)
    b.p.add_symbol(k.symbols[i].name, k.symbols[i].min, i < assume.multiples.size() ? assume.multiples[i] : 1);
}
std::vector<uint32_t> declare_buffers(ProgramBuilder& b, const Kernel& k, const SimtAssume& assume,
                                      std::span<const uint32_t> left_out) {
  declare_symbols(b, k, assume);
  std::vector<uint32_t> out;
  KernelCopy copy(b, k, {});
  for (uint32_t i = 0; i < k.buffers.size(); ++i) {
    const Buffer& x = k.buffers[i];
    const bool missing = std::find(left_out.begin(), left_out.end(), i) != left_out.end();
    out.push_back(missing ? kNone : b.buffer(x.name, Memory::Global, x.type, copy.index(x.extent), x.access));
  }
  return out;
}

bool contiguous_load(Kernel& k, const Inst& x, uint32_t axis) {
  if (x.op != Op::Load || x.args[0] != kNone || k.buffers[x.id].access != Access::In || x.type == Type::Bool) return false;
  std::vector<uint32_t> values;
  k.pool.collect(x.index, AtomKind::Value, values);
  const auto a = k.pool.affine(x.index, axis);
  return values.empty() && a && a->coefficient == kOne;
}

}  // namespace tessera::kit
