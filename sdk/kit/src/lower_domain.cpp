// SPDX-License-Identifier: Apache-2.0
// The iteration space of a piece: which dimensions are axes, where a reshape cuts one of them in two, and where each output
// lies in it.
#include <algorithm>

#include "lowering.hpp"

namespace tessera::kit {

int Lowering::root() const {
  std::vector<uint8_t> seen;
  int found = -1;
  std::vector<int> stack;
  for (const Output& o : outputs_) stack.push_back(o.tensor);
  while (!stack.empty()) {
    const int t = stack.back();
    stack.pop_back();
    if (static_cast<size_t>(t) >= seen.size()) seen.resize(static_cast<size_t>(t) + 1, 0);
    if (seen[static_cast<size_t>(t)]++) continue;
    if (table_.at(t).kind == Kind::Reduce && (found < 0 || t < found)) found = t;
    for (const int o : table_.at(t).operands) stack.push_back(o);
  }
  return found;
}

Expr Lowering::extent_of(const Split& s) {
  Expr inner = kZero;
  for (const Split::Part& p : s.inner) {
    Expr e = pool_.number(p.coefficient);
    for (const uint32_t x : p.symbols) e = pool_.mul(e, pool_.symbol(x));
    inner = pool_.add(inner, e);
  }
  return inner;
}

void Lowering::domain() {
  struct Dim {
    Expr extent;
    bool reduced;
  };
  std::vector<Dim> dims;
  if (const int r = root(); r >= 0) {
    const Tensor& t = table_.at(r);
    const auto& shape = table_.at(t.operands[0]).shape;
    for (uint32_t d = 0; d < shape.size(); ++d)
      dims.push_back({shape[d], std::find(t.axes.begin(), t.axes.end(), d) != t.axes.end()});
    if (t.axes.empty()) dims.push_back({kOne, true});
  } else {
    const Output* best = &outputs_[0];
    for (const Output& o : outputs_)
      if (table_.at(o.tensor).shape.size() > table_.at(best->tensor).shape.size()) best = &o;
    for (const Expr e : table_.at(best->tensor).shape) dims.push_back({e, false});
  }
  std::erase_if(dims, [](const Dim& d) { return d.extent == kOne && !d.reduced; });
  for (const Split& s : splits_) {
    const Dim d = dims[s.axis];
    const Expr inner = extent_of(s);
    dims[s.axis].extent = *pool_.divide_exactly(d.extent, inner);
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(s.axis) + 1, {inner, d.reduced});
  }
  for (const Dim& d : dims) {
    const size_t number = d.reduced ? loop_.size() : k_.parallel.size();
    const uint32_t a = k_.add_axis((d.reduced ? "r" : "p") + std::to_string(number), d.extent);
    (d.reduced ? loop_ : k_.parallel).push_back(a);
    all_.push_back(a);
  }
  across_ = !dims.empty() && !dims.back().reduced;
  const auto extents = [&](const std::vector<uint32_t>& axes) {
    std::vector<Expr> e;
    for (const uint32_t a : axes) e.push_back(pool_.extent(a));
    return e;
  };
  const auto number = [&](const std::vector<uint32_t>& axes) {
    std::vector<Expr> p;
    for (const uint32_t a : axes) p.push_back(pool_.axis(a));
    return pool_.linear(p, extents(axes));
  };
  const Expr points = pool_.product(extents(all_)), rows = pool_.product(extents(k_.parallel));
  loop_extent_ = pool_.product(extents(loop_));
  loop_number_ = number(loop_);
  // Of a reduction over one element, rows and points are as many; rows are then right.
  for (Output& o : outputs_) {
    const auto& shape = table_.at(o.tensor).shape;
    const Expr elements = pool_.product(shape);
    if (elements == rows && !loop_.empty()) {
      o.at = reshaped(number(k_.parallel), extents(k_.parallel), k_.parallel, shape);
    } else if (elements == points) {
      o.at = reshaped(number(all_), extents(all_), all_, shape);
      o.full = !loop_.empty();
    } else {
      unfit("its outputs have different sizes");
    }
  }
  if (loop_.empty())
    for (Output& o : outputs_)
      if (auto at = as_another_output(o.tensor)) o.at = std::move(*at);
}

// An output that is another one in another order is stored where that one is computed, not computed once more elsewhere. Only
// where rows stay whole, so that both are stored in vectors.
std::optional<Position> Lowering::as_another_output(int id) const {
  const Tensor& t = table_.at(id);
  if (t.kind != Kind::View || t.view != ViewKind::Transpose || t.perm.empty()) return std::nullopt;
  if (t.perm.back() + 1 != static_cast<int64_t>(t.perm.size())) return std::nullopt;
  for (const Output& o : outputs_) {
    if (o.tensor != t.operands[0]) continue;
    Position at;
    for (const int64_t d : t.perm) at.push_back(o.at[static_cast<size_t>(d)]);
    return at;
  }
  return std::nullopt;
}

Position Lowering::reshaped(Expr, const std::vector<Expr>& extents, const std::vector<uint32_t>& axes,
                            const std::vector<Expr>& shape) {
  Position from;
  for (const uint32_t a : axes) from.push_back(pool_.axis(a));
  return reshape(from, extents, shape);
}

Position Lowering::reshape(const Position& from, const std::vector<Expr>& in, const std::vector<Expr>& out) {
  Position at(out.size(), kZero);
  size_t i = in.size(), j = out.size();
  while (i > 0 || j > 0) {
    const size_t i1 = i, j1 = j;
    Expr a = kOne, b = kOne;
    bool closed = false;
    if (i > 0 && in[i - 1] == kOne) {
      --i;
      continue;
    }
    if (j > 0 && out[j - 1] == kOne) {
      --j;
      continue;
    }
    if (i == 0 || j == 0) break;
    a = in[--i];
    b = out[--j];
    while (!closed) {
      if (a == b) {
        closed = true;
      } else if (i > 0 && pool_.divide_exactly(b, a)) {
        a = pool_.mul(a, in[--i]);
      } else if (j > 0 && pool_.divide_exactly(a, b)) {
        b = pool_.mul(b, out[--j]);
      } else if (i > 0 || j > 0) {  // no common grouping is found: all that is left is one group
        i = j = 0;
        closed = true;
      } else {
        closed = true;
      }
    }
    const std::span<const Expr> part(from.data() + i, i1 - i), sizes(in.data() + i, i1 - i), target(out.data() + j, j1 - j);
    if (part.size() == 1 && target.size() == 1) {
      at[j] = part[0];
      continue;
    }
    const Position p = pool_.position(pool_.linear(part, sizes), target);
    std::copy(p.begin(), p.end(), at.begin() + static_cast<std::ptrdiff_t>(j));
  }
  return at;
}

void Lowering::look_for_cuts(const Position& at) {
  for (const Expr e : at)
    for (const Term& t : pool_.terms(e))
      for (const uint32_t id : t.atoms) {
        const Atom a = pool_.atom_at(id);
        if (a.kind != AtomKind::FloorDiv && a.kind != AtomKind::Mod) continue;
        const auto axis = pool_.as_axis(a.a);
        if (!axis || !pool_.divide_exactly(pool_.extent(*axis), a.b)) continue;
        Split cut{static_cast<size_t>(std::find(all_.begin(), all_.end(), *axis) - all_.begin()), {}};
        bool plain = true;
        for (const Term& term : pool_.terms(a.b)) {
          cut.inner.push_back({term.coefficient, {}});
          for (const uint32_t x : term.atoms) {
            plain = plain && pool_.atom_at(x).kind == AtomKind::Symbol;
            cut.inner.back().symbols.push_back(pool_.atom_at(x).id);
          }
        }
        if (plain) throw cut;
      }
}

}  // namespace tessera::kit
