// SPDX-License-Identifier: Apache-2.0
// The first walk: how many loops must run before a value can be computed, and which reductions are asked for where.
#include <algorithm>

#include "lowering.hpp"

namespace tessera::kit {

int Lowering::visit(int id, const Position& at, bool guarded) {
  const auto key = std::make_tuple(id, at, guarded);
  if (const auto it = levels_.find(key); it != levels_.end()) return it->second;
  if (levels_.size() > kMaxInsts) unfit("it is too large");
  const Tensor t = table_.at(id);
  int level = 0;
  const auto operand = [&](int x, const Position& p, bool g) { level = std::max(level, visit(x, p, g)); };
  switch (t.kind) {
    case Kind::Input:
    case Kind::Constant:
    case Kind::Iota:
    case Kind::Size: break;
    case Kind::Elementwise:
    case Kind::Cast:
      for (const int x : t.operands) operand(x, broadcast(at, table_.at(x)), guarded);
      break;
    case Kind::View: {
      const Position p = through_view(t, at);
      if (t.view == ViewKind::Reshape) look_for_cuts(p);
      operand(t.operands[0], p, guarded);
      break;
    }
    case Kind::Concat: {
      Position p = at;
      for (const int x : t.operands) {
        operand(x, p, true);
        p[t.number] = pool_.sub(p[t.number], table_.at(x).shape[t.number]);
      }
      break;
    }
    case Kind::Pad: {
      Position p;
      for (size_t d = 0; d < at.size(); ++d) p.push_back(pool_.sub(at[d], t.starts[d]));
      operand(t.operands[0], p, true);
      operand(t.operands[1], {}, guarded);
      break;
    }
    case Kind::Gather:
      operand(t.operands[1], gather_index(t, at), guarded);
      operand(t.operands[0], gathered(t, at, placeholder(id, 0)), guarded);
      break;
    case Kind::Window: {
      operand(t.operands[0], t.read(pool_, at).at, true);
      operand(t.operands[1], {}, guarded);
      break;
    }
    case Kind::GatherNd: {
      std::vector<Expr> indices;
      for (const Position& p : tuple_of(t, at)) {
        operand(t.operands[1], p, guarded);
        indices.push_back(placeholder(id, indices.size()));
      }
      operand(t.operands[0], gathered_nd(t, at, indices), guarded);
      break;
    }
    case Kind::DynamicSlice:
    case Kind::DynamicUpdate: {
      const bool update = t.kind == Kind::DynamicUpdate;
      Position p = at;
      for (size_t d = 0; d < at.size(); ++d) {
        operand(t.operands[d + (update ? 2 : 1)], {}, guarded);
        p[d] = update ? pool_.sub(p[d], placeholder(id, d)) : pool_.add(p[d], placeholder(id, d));
      }
      if (update) {
        operand(t.operands[1], p, true);
        operand(t.operands[0], at, guarded);
      } else {
        operand(t.operands[0], p, guarded);
      }
      break;
    }
    case Kind::Reduce: {
      if (guarded) unfit("a padded or concatenated part is reduced first");
      if (uses_loop(at)) unfit("a reduction is read along the dimension that another one reduces");
      for (const Expr e : at) {
        std::vector<uint32_t> values;
        pool_.collect(e, AtomKind::Value, values);
        if (!values.empty()) unfit("the result of a reduction is indexed by data");
      }
      int l = 0;
      for (const int x : t.operands) l = std::max(l, visit(x, reduced(t, at), false));
      demands_.push_back({id, at, l});
      level = l + 1;
      break;
    }
  }
  levels_.emplace(key, level);
  return level;
}

}  // namespace tessera::kit
