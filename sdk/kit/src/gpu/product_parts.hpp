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
