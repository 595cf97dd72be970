// SPDX-License-Identifier: Apache-2.0
#include "axes.hpp"

namespace tessera::kit {
namespace {

template <class F>
void each_index(Kernel& k, F f) {
  for (Inst& x : k.insts)
    if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) f(x.index);
}

// Every index is rest + c * (outer * extent(inner) + inner).
bool walk_as_one(Kernel& k, uint32_t outer, uint32_t inner) {
  bool fits = true;
  each_index(k, [&](Expr e) {
    if (!fits) return;
    const auto o = k.pool.affine(e, outer), i = k.pool.affine(e, inner);
    fits = o && i && o->coefficient == k.pool.mul(i->coefficient, k.pool.extent(inner)) &&
           !k.pool.uses(i->coefficient, AtomKind::Axis, outer);
  });
  return fits;
}

// Afterwards `inner` is gone; the new axis takes the place of `outer`.
uint32_t join(Kernel& k, uint32_t outer, uint32_t inner) {
  const uint32_t axis = k.add_axis(k.axis_names[outer], k.pool.mul(k.pool.extent(outer), k.pool.extent(inner)));
  each_index(k, [&](Expr& e) {
    e = k.pool.substitute(e, [&](const Atom& a) -> std::optional<Expr> {
      if (a.kind != AtomKind::Axis) return std::nullopt;
      if (a.id == outer) return kZero;
      if (a.id == inner) return k.pool.axis(axis);
      return std::nullopt;
    });
  });
  return axis;
}

}  // namespace

void merge_axes(Kernel& k) {
  for (size_t i = 0; i + 1 < k.parallel.size();) {
    if (!walk_as_one(k, k.parallel[i], k.parallel[i + 1])) {
      ++i;
      continue;
    }
    k.parallel[i] = join(k, k.parallel[i], k.parallel[i + 1]);
    k.parallel.erase(k.parallel.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
  if (k.loops.empty()) return;
  // All loops run over the same axes.
  std::vector<uint32_t> axes = k.loops[0].axes;
  for (size_t i = 0; i + 1 < axes.size();) {
    if (!walk_as_one(k, axes[i], axes[i + 1])) {
      ++i;
      continue;
    }
    axes[i] = join(k, axes[i], axes[i + 1]);
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    if (i > 0) --i;
  }
  for (Loop& l : k.loops) l.axes = axes;
}

}  // namespace tessera::kit
