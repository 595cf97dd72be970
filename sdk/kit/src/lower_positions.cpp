// SPDX-License-Identifier: Apache-2.0
// At which positions of its operands a tensor is computed.
#include "lowering.hpp"

namespace tessera::kit {

Position Lowering::broadcast(const Position& at, const Tensor& operand) {
  Position p(operand.shape.size(), kZero);
  for (size_t d = 0; d < p.size(); ++d)
    if (operand.shape[d] != kOne) p[d] = at[at.size() - p.size() + d];
  return p;
}

Position Lowering::through_view(const Tensor& t, const Position& at) {
  const Tensor& x = table_.at(t.operands[0]);
  switch (t.view) {
    case ViewKind::Broadcast: return broadcast(at, x);
    case ViewKind::Reshape: return reshape(at, t.shape, x.shape);
    case ViewKind::Transpose: {
      Position p(at.size());
      for (size_t d = 0; d < at.size(); ++d) p[static_cast<size_t>(t.perm[d])] = at[d];
      return p;
    }
    case ViewKind::Slice: {
      Position p(at.size());
      for (size_t d = 0; d < at.size(); ++d) p[d] = pool_.add(t.starts[d], pool_.mul(at[d], t.steps[d]));
      return p;
    }
  }
  return at;
}

Position Lowering::reduced(const Tensor& t, const Position& at) {
  const auto& shape = table_.at(t.operands[0]).shape;
  std::vector<Expr> sizes;
  for (const uint32_t a : t.axes) sizes.push_back(shape[a]);
  if (pool_.product(sizes) != loop_extent_) unfit("two reductions run over different numbers of elements");
  Position from;
  std::vector<Expr> extents;
  for (const uint32_t a : loop_) {
    from.push_back(pool_.axis(a));
    extents.push_back(pool_.extent(a));
  }
  const Position inner = reshape(from, extents, sizes);
  Position p = at;
  for (size_t i = 0; i < t.axes.size(); ++i) p[t.axes[i]] = inner[i];
  return p;
}

Position Lowering::gather_index(const Tensor& t, const Position& at) {
  if (t.op == "take_along_axis") return at;
  const size_t rank = table_.at(t.operands[1]).shape.size();
  return Position(at.begin() + t.number, at.begin() + static_cast<std::ptrdiff_t>(t.number + rank));
}

Position Lowering::gathered(const Tensor& t, const Position& at, Expr index) {
  if (t.op == "take_along_axis") {
    Position p = at;
    p[t.number] = index;
    return p;
  }
  const size_t rank = table_.at(t.operands[1]).shape.size();
  Position p(at.begin(), at.begin() + t.number);
  p.push_back(index);
  p.insert(p.end(), at.begin() + static_cast<std::ptrdiff_t>(t.number + rank), at.end());
  return p;
}

std::vector<Position> Lowering::tuple_of(const Tensor& t, const Position& at) {
  const auto& shape = table_.at(t.operands[1]).shape;
  Position p(at.begin(), at.begin() + static_cast<std::ptrdiff_t>(shape.size() - 1));
  p.push_back(kZero);
  std::vector<Position> out;
  for (int64_t i = 0; i < *pool_.as_number(shape.back()); ++i) {
    p.back() = pool_.number(i);
    out.push_back(p);
  }
  return out;
}

Position Lowering::gathered_nd(const Tensor& t, const Position& at, const std::vector<Expr>& indices) {
  Position p(at.begin(), at.begin() + t.number);
  p.insert(p.end(), indices.begin(), indices.end());
  const size_t lead = table_.at(t.operands[1]).shape.size() - 1;
  p.insert(p.end(), at.begin() + static_cast<std::ptrdiff_t>(lead), at.end());
  return p;
}

bool Lowering::uses_loop(const Position& at) const {
  for (const Expr e : at)
    for (const uint32_t a : loop_)
      if (pool_.uses(e, AtomKind::Axis, a)) return true;
  return false;
}

}  // namespace tessera::kit
