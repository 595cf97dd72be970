// SPDX-License-Identifier: Apache-2.0
// A piece that is computed window by window. It is lowered as a whole tensor, whose bounds simplify its indices; then each axis
// of the tensor becomes the place of the window and an axis of its own.
#include <algorithm>

#include "lowering.hpp"
#include "tessera/kit/schedule.hpp"
#include "tessera/kit/verify.hpp"

namespace tessera::kit {

LoweredWindow Lowering::run_window(std::span<const tsr_dim> shape, std::span<const sdk::Value> windowed) {
  if (shape.size() < 2) unfit("a window has two dimensions");
  tensors();
  if (outputs_.size() != 1) unfit("a window has one result");
  if (root() >= 0) unfit("a window cannot hold a reduction");
  std::vector<Expr> sizes;
  for (const tsr_dim d : shape) sizes.push_back(table_.expr(d));
  const std::vector<std::vector<uint32_t>> axes = window_axes(sizes);
  Position whole;
  for (const auto& of_dim : axes) {
    Position at;
    for (const uint32_t a : of_dim) at.push_back(pool_.axis(a));
    whole.push_back(pool_.linear(at, extents_of(of_dim)));
  }
  for (const sdk::Value& v : windowed)
    if (compute_type(type_of(v.type().dtype())) != type_of(v.type().dtype())) unfit("windows hold no narrow numbers");
  Output& o = outputs_[0];
  if (Type& t = k_.buffers[o.buffer].type; t == Type::F16 || t == Type::BF16) t = Type::F32;
  const auto& of = table_.at(o.tensor).shape;
  if (of.size() > shape.size()) unfit("its result has more dimensions than the windows are cut from");
  for (size_t d = 0; d < of.size(); ++d)
    if (of[d] != kOne && of[d] != sizes[shape.size() - of.size() + d]) unfit("its result is not of the windows' size");
  o.at = broadcast(whole, table_.at(o.tensor));
  visit(o.tensor, o.at, false);
  emit();
  place_window(axes, pool_.linear(whole, sizes), windowed);
  verify(k_);
  return {{std::move(k_), std::move(table_.symbol_dims)}, static_cast<uint32_t>(shape.size())};
}

std::vector<Expr> Lowering::extents_of(const std::vector<uint32_t>& axes) const {
  std::vector<Expr> out;
  for (const uint32_t a : axes) out.push_back(pool_.extent(a));
  return out;
}

std::vector<std::vector<uint32_t>> Lowering::window_axes(const std::vector<Expr>& sizes) {
  struct Part {
    size_t dim;
    Expr extent;
  };
  std::vector<Part> parts;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] != kOne) parts.push_back({d, sizes[d]});
  for (const Split& s : splits_) {
    const Part whole = parts[s.axis];
    const Expr inner = extent_of(s);
    parts[s.axis].extent = *pool_.divide_exactly(whole.extent, inner);
    parts.insert(parts.begin() + static_cast<std::ptrdiff_t>(s.axis) + 1, {whole.dim, inner});
  }
  std::vector<std::vector<uint32_t>> axes(sizes.size());
  for (const Part& p : parts) {
    all_.push_back(k_.add_axis("p" + std::to_string(all_.size()), p.extent));
    axes[p.dim].push_back(all_.back());
  }
  return axes;
}

void Lowering::place_window(const std::vector<std::vector<uint32_t>>& axes, Expr point, std::span<const sdk::Value> windowed) {
  const auto symbol = [&](std::string name, int64_t min) {
    const auto taken = [&](const Symbol& s) { return s.name == name; };
    while (std::any_of(k_.symbols.begin(), k_.symbols.end(), taken)) name += "_";
    return pool_.symbol(k_.add_symbol(name, min));
  };
  std::vector<Expr> place;
  for (size_t d = 0; d + 2 < axes.size(); ++d) place.push_back(symbol("place" + std::to_string(d), 0));
  const Expr row = symbol("row", 0), rows = symbol("rows", 1), column = symbol("column", 0), columns = symbol("columns", 1),
             step = symbol("step", 1);
  const uint32_t c = k_.add_axis("c", columns), r = k_.add_axis("r", rows);
  place.push_back(pool_.add(row, pool_.axis(r)));
  place.push_back(pool_.add(column, pool_.axis(c)));
  k_.parallel = {c, r};
  std::map<uint32_t, Expr> now;  // by axis of the tensor
  for (size_t d = 0; d < axes.size(); ++d) {
    const Position p = pool_.position(place[d], extents_of(axes[d]));
    for (size_t i = 0; i < p.size(); ++i) now[axes[d][i]] = p[i];
  }
  const Expr here = pool_.add(pool_.mul(pool_.axis(c), step), pool_.axis(r)), extent = pool_.mul(columns, step);
  std::vector<uint8_t> of_window(k_.buffers.size(), 0);
  for (size_t b = 0; b < k_.buffers.size(); ++b) {
    of_window[b] = b == outputs_[0].buffer || std::find(windowed.begin(), windowed.end(), piece_.inputs[b]) != windowed.end();
    if (of_window[b]) k_.buffers[b].extent = extent;
  }
  for (Inst& x : k_.insts) {
    if (x.op != Op::Index && x.op != Op::Load && x.op != Op::Store) continue;
    if (x.op != Op::Index && of_window[x.id]) {
      // The result itself may be broadcast; what is read must be of this point.
      if (x.op == Op::Load && x.index != point) unfit("it reads another point of the window's tensor than it computes");
      x.index = here;
      continue;
    }
    x.index = pool_.substitute(x.index, [&](const Atom& a) -> std::optional<Expr> {
      const auto at = a.kind == AtomKind::Axis ? now.find(a.id) : now.end();
      return at == now.end() ? std::nullopt : std::optional(at->second);
    });
  }
}

LoweredWindow lower_window(const Piece& piece, const std::string& name, std::span<const tsr_dim> shape,
                           std::span<const sdk::Value> windowed) {
  return refined([&](const std::vector<Split>& splits) { return Lowering(piece, name, splits).run_window(shape, windowed); });
}

Schedule window_schedule(const Kernel& k, const Device& device) {
  Schedule s;
  const int lanes = std::max(1, device.vector_bytes / 4);
  s.lane_axis = k.parallel[1];
  s.tile_axis = k.parallel[0];
  // Two registers side by side where they are short: see schedule.cpp.
  s.width = device.vector_bytes >= 64 ? lanes : 2 * lanes;
  s.block = s.tile_points = kWindowPoints;
  return s;
}

}  // namespace tessera::kit
