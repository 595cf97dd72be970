// SPDX-License-Identifier: Apache-2.0
// What forms of products share: which axes of a kernel are rows, columns and batch, and its operands at a point.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "build.hpp"

namespace tessera::kit {

// Does any instruction hold that this value is computed from, itself included?
template <class F>
bool any_below(const Kernel& k, uint32_t id, const F& holds) {
  std::vector<uint32_t> stack = {id};
  std::set<uint32_t> seen;
  while (!stack.empty()) {
    const uint32_t v = stack.back();
    stack.pop_back();
    if (!seen.insert(v).second) continue;
    const Inst& x = k.insts[v];
    if (holds(x)) return true;
    for (const uint32_t a : x.args)
      if (a != kNone) stack.push_back(a);
  }
  return false;
}

class ProductParts {
 protected:
  // Throws TSR-K041 where the kernel is no product.
  ProductParts(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a)
      : k_(k), s_(s), b_(k.name, d), copy_(b_, k, declare_buffers(b_, k, a)) {
    find_dot();
  }

  Expr begin_unless_one(Expr blocks) { return blocks == kOne ? kZero : b_.begin(Bind::Grid, "b", blocks); }

  // The value of an instruction and of all that it is computed from, at the point where `copy_` stands. `known` has what is
  // there already.
  uint32_t evaluate(uint32_t id, uint32_t ok, std::map<uint32_t, uint32_t>& known) {
    if (const auto it = known.find(id); it != known.end()) return it->second;
    const Inst& x = k_.insts[id];
    for (const uint32_t a : x.args)
      if (a != kNone) evaluate(a, ok, known);
    std::vector<uint32_t> values;
    if (x.op == Op::Load || x.op == Op::Index) k_.pool.collect(x.index, AtomKind::Value, values);
    for (const uint32_t v : values) evaluate(v, ok, known);
    return known[id] = copy_.copy(id, ok);
  }

  // `n` elements of a factor along the depth, from (line, deep) on, to registers from `to` on; `beyond` where it has none.
  // `together`: they are one access to memory, and there all or none. Else they are computed one by one.
  void bring(uint32_t factor, bool together, const Space& lines, Expr line, const Space& depth, Expr deep, uint32_t registers,
             Expr to, int64_t n, uint64_t beyond) {
    IndexPool& p = b_.pool();
    const Type type = b_.p.buffers[registers].type;
    if (together) {
      const Expr c = b_.begin(Bind::Unroll, "c", p.number(n));
      b_.store(registers, p.add(to, c), b_.constant(type, beyond));
      b_.end();
      const bool opened = b_.begin_if(b_.both(b_.below(line, lines.points), b_.below(deep, depth.points)));
      go_to(b_, copy_, lines, line);
      go_to(b_, copy_, depth, deep);
      const Inst& load = k_.insts[factor];
      b_.load_elements(copy_.buffer(load.id), copy_.index(load.index), registers, to, n);
      b_.end_if(opened);
      return;
    }
    go_to(b_, copy_, lines, line);
    const Expr v = b_.begin(Bind::Unroll, "v", p.number(n));
    const Expr place = p.add(deep, v);
    const uint32_t ok = b_.both(b_.below(line, lines.points), b_.below(place, depth.points));
    go_to(b_, copy_, depth, place);
    std::map<uint32_t, uint32_t> known;
    uint32_t value = evaluate(factor, ok, known);
    if (ok != kNone) value = b_.select(ok, value, b_.constant(type, beyond));
    b_.store(registers, p.add(to, v), value);
    b_.end();
  }

  // What follows from two sums beside each other, those of (row, column) and (row, column + 1), which lie at `at` in `sums`;
  // the column is even. Where memory lies side by side it is accessed as pairs (pairs_of).
  void finish_pair(const Space& rows, const Space& columns, Expr row, Expr column, uint32_t sums, Expr at,
                   const std::map<uint32_t, uint32_t>& pairs) {
    IndexPool& p = b_.pool();
    const auto go = [&](Expr c) {
      go_to(b_, copy_, rows, row);
      go_to(b_, copy_, columns, c);
    };
    const auto move = [&](Op op) {
      for (const auto& [id, registers] : pairs) {
        const Inst& x = k_.insts[id];
        if (x.op == op && op == Op::Load) b_.load_elements(copy_.buffer(x.id), copy_.index(x.index), registers, kZero, 2);
        if (x.op == op && op == Op::Store) b_.store_elements(copy_.buffer(x.id), copy_.index(x.index), registers, kZero, 2);
      }
    };
    const bool whole = b_.p.divisible(columns.points, 2);  // both columns, or none
    const bool row_opened = b_.begin_if(b_.below(row, rows.points)),
               opened = whole && b_.begin_if(b_.below(column, columns.points));
    go(column);
    move(Op::Load);
    const Expr e = b_.begin(Bind::Unroll, "e", p.number(2)), mine = p.add(column, e);
    const bool one_opened = !whole && b_.begin_if(b_.below(mine, columns.points));
    go(mine);
    copy_.set_value(dot_, b_.load(sums, p.add(at, e)));
    for (const Item& item : k_.body) {
      if (item.is_loop) continue;
      const Inst& x = k_.insts[item.id];
      const auto pair = pairs.find(item.id);
      if (pair == pairs.end())
        copy_.copy(item.id);
      else if (x.op == Op::Load)
        copy_.set_value(item.id, b_.load(pair->second, e));
      else
        b_.store(pair->second, e, copy_.value(x.args[0]));
    }
    b_.end_if(one_opened);
    b_.end();
    go(column);
    move(Op::Store);
    b_.end_if(opened);
    b_.end_if(row_opened);
  }
  // The loads and stores behind the product that take two columns in one access, and the registers for them.
  std::map<uint32_t, uint32_t> pairs_of(const Space& rows, const Space& columns) {
    IndexPool& p = b_.pool();
    std::map<uint32_t, uint32_t> pairs;
    if (!b_.p.divisible(columns.points, 2)) return pairs;
    const Expr row = p.axis(b_.p.add_axis("any", rows.points)),
               column = b_.scaled(p.axis(b_.p.add_axis("any", b_.ceil_div(columns.points, 2))), 2);
    for (const Item& item : k_.body) {
      if (item.is_loop) continue;
      const Inst& x = k_.insts[item.id];
      const bool load = x.op == Op::Load && x.args[0] == kNone && k_.buffers[x.id].access == Access::In,
                 store = x.op == Op::Store && x.args[1] == kNone;
      std::vector<uint32_t> values;
      if (load || store) k_.pool.collect(x.index, AtomKind::Value, values);
      if ((!load && !store) || !values.empty() || k_.buffers[x.id].type == Type::Bool) continue;
      go_to(b_, copy_, rows, row);
      go_to(b_, copy_, columns, column);
      const Expr from = copy_.index(x.index);
      go_to(b_, copy_, columns, p.add(column, kOne));
      if (b_.p.divisible(from, 2) && p.as_number(p.sub(copy_.index(x.index), from)) == 1)
        pairs[item.id] = b_.buffer(k_.buffers[x.id].name + "_v", Memory::Register, k_.buffers[x.id].type, p.number(2));
    }
    return pairs;
  }

  // Does a load of this value lie side by side along the last of these axes?
  bool contiguous_along(uint32_t id, const std::vector<uint32_t>& axes) {
    return any_below(k_, id, [&](const Inst& x) {
      if (x.op != Op::Load) return false;
      const auto a = k_.pool.affine(x.index, axes.back());
      return a && a->coefficient == kOne;
    });
  }

  Kernel& k_;
  SimtSchedule s_;
  ProgramBuilder b_;
  KernelCopy copy_;
  const Loop* loop_ = nullptr;
  uint32_t dot_ = kNone;
  Type type_ = Type::F32;
  std::vector<uint32_t> batch_, rows_, columns_;

 private:
  void find_dot() {
    for (const Item& item : k_.body) {
      if (!item.is_loop) continue;
      if (loop_) no_program("a product and another loop");
      loop_ = &k_.loops[item.id];
    }
    if (!loop_) no_program("it has no product");
    for (const Item& item : loop_->body) {
      if (item.is_loop) no_program("a loop in the loop of a product");
      const Inst& x = k_.insts[item.id];
      if (x.op == Op::Store || x.op == Op::Check) no_program("a product that does more than multiply");
      if (x.op != Op::Reduce) continue;
      if (static_cast<ReduceKind>(x.id) != ReduceKind::Dot || dot_ != kNone) no_program("a product and another reduction");
      dot_ = item.id;
    }
    if (dot_ == kNone) no_program("it has no product");
    type_ = k_.insts[dot_].type;
    std::set<uint32_t> of_left, of_right;
    std::set<uint32_t> seen;
    depends(k_.insts[dot_].args[0], of_left, seen);
    seen.clear();
    depends(k_.insts[dot_].args[1], of_right, seen);
    for (const uint32_t axis : k_.parallel) {
      const bool l = of_left.contains(axis), r = of_right.contains(axis);
      (l == r ? batch_ : l ? rows_ : columns_).push_back(axis);
    }
  }

  // The axes that a value depends on. What comes before the product must be free of checks: those are made once for each point.
  void depends(uint32_t id, std::set<uint32_t>& axes, std::set<uint32_t>& seen) {
    if (!seen.insert(id).second) return;
    const Inst& x = k_.insts[id];
    if (x.op == Op::Reduce) no_program("a product of reductions");
    for (const uint32_t a : x.args)
      if (a != kNone) depends(a, axes, seen);
    if (x.op != Op::Load && x.op != Op::Index) return;
    std::vector<uint32_t> found;
    k_.pool.collect(x.index, AtomKind::Axis, found);
    axes.insert(found.begin(), found.end());
    found.clear();
    k_.pool.collect(x.index, AtomKind::Value, found);
    for (const uint32_t v : found) depends(v, axes, seen);
  }
};

}  // namespace tessera::kit
