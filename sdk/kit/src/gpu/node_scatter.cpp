// SPDX-License-Identifier: Apache-2.0
// Scatters: a thread owns all elements that the updates it applies can reach, so that updates come in their order without
// atomics.
#include "node_program.hpp"

namespace tessera::kit {
namespace {

// What an update makes of an element, both of the storage type.
uint32_t updated(NodeWriter& w, std::string_view how, uint32_t old, uint32_t update) {
  if (how == "none") return update;
  const Type type = w.b.type_of(old);
  if (type == Type::Bool) {
    const bool any = how == "add" || how == "max";
    return any ? w.either(old, update) : w.both(old, update);
  }
  const uint32_t a = w.widened(old), b = w.widened(update);
  if (how == "add" || how == "mul") return w.convert(w.b.binary(how == "add" ? Op::Add : Op::Mul, a, b), type);
  const uint32_t keeps = w.either(w.is_nan(a), w.b.binary(how == "max" ? Op::Gt : Op::Lt, a, b));
  return w.b.select(keeps, old, update);
}

void apply(NodeWriter& w, std::string_view how, uint32_t inside, Expr to, Expr update_at) {
  const bool opened = w.b.begin_if(inside);
  const uint32_t update = w.b.load(w.input(2), update_at);
  w.b.store(w.output(0), to, how == "none" ? update : updated(w, how, w.b.load(w.output(0), to), update));
  w.b.end_if(opened);
}

}  // namespace

// A thread for each line along the axis.
void write_scatter(NodeWriter& w) {
  IndexPool& p = w.pool();
  const std::string how(w.node.attr("reduction").as_string());
  const std::vector<Expr> sizes = w.shape(w.input(0)), updates = w.shape(w.input(1));
  const size_t axis = w.axis("axis", w.input(0));
  std::vector<Expr> lines = sizes;
  lines[axis] = kOne;
  w.each(w.points(lines), [&](Expr line) {
    std::vector<Expr> at = p.position(line, lines);
    const Expr i = w.b.begin(Bind::Serial, "i", sizes[axis]);
    at[axis] = i;
    const Expr element = p.linear(at, sizes);
    w.b.store(w.output(0), element, w.b.load(w.input(0), element));
    w.b.end();
    uint32_t reached = kNone;  // by updates at all
    for (size_t d = 0; d < sizes.size(); ++d)
      if (d != axis) reached = w.b.both(reached, w.b.below(at[d], updates[d]));
    const bool opened = w.b.begin_if(reached);
    const Expr j = w.b.begin(Bind::Serial, "j", updates[axis]);
    at[axis] = j;
    const Expr from = p.linear(at, updates);
    const NodeWriter::Checked index = w.checked(w.input(1), from, sizes[axis]);
    at[axis] = index.at;
    apply(w, how, index.inside, p.linear(at, sizes), from);
    w.b.end();
    w.b.end_if(opened);
  });
}

// A thread for each element of the slices that the tuples of indices name.
void write_scatter_nd(NodeWriter& w) {
  IndexPool& p = w.pool();
  const std::string how(w.node.attr("reduction").as_string());
  const std::vector<Expr> sizes = w.shape(w.input(0)), indices = w.shape(w.input(1));
  const auto depth = static_cast<size_t>(*p.as_number(indices.back()));
  const std::vector<Expr> named(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(depth)),
      slice(sizes.begin() + static_cast<std::ptrdiff_t>(depth), sizes.end());
  const Expr slices = w.points(named), width = w.points(slice);
  const Expr tuples = w.points({indices.begin(), indices.end() - 1});
  w.each(width, [&](Expr element) {
    const Expr i = w.b.begin(Bind::Serial, "i", slices);
    const Expr whole = p.add(p.mul(i, width), element);
    w.b.store(w.output(0), whole, w.b.load(w.input(0), whole));
    w.b.end();
    const Expr j = w.b.begin(Bind::Serial, "j", tuples);
    Expr at = kZero;
    uint32_t inside = kNone;
    for (size_t d = 0; d < depth; ++d) {
      const NodeWriter::Checked index =
          w.checked(w.input(1), p.add(w.b.scaled(j, static_cast<int64_t>(depth)), p.number(static_cast<int64_t>(d))), sizes[d]);
      at = p.add(p.mul(at, sizes[d]), index.at);
      inside = w.b.both(inside, index.inside);
    }
    apply(w, how, inside, p.add(p.mul(at, width), element), p.add(p.mul(j, width), element));
    w.b.end();
  });
}

}  // namespace tessera::kit
