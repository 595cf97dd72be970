// SPDX-License-Identifier: Apache-2.0
// Kernels without loops, and reductions across so few rows that a thread reads them all. A block has a piece of the two
// innermost groups of axes; a thread has vectors along the inner one. All loads of a thread are made before its first
// computation, so that several are in flight. Where something is read along another axis than the inner one, a block reads
// tiles of it along that axis, puts them into shared memory, and reads them from there along the inner axis.
#include <algorithm>
#include <functional>
#include <map>

#include "build.hpp"

namespace tessera::kit {
namespace {

class PointwiseWriter {
 public:
  PointwiseWriter(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a)
      : k_(k), s_(s), o_(o), b_(k.name, d), groups_(collapse(k, k.parallel)), copy_(b_, k, declare_buffers(b_, k, a)) {
    if (groups_.empty()) no_program("it has one point");
    for (const AxisGroup& g : groups_) {
      for (const uint32_t outer : g.outer) copy_.set_axis(outer, kZero);
      extents_.push_back(copy_.index(g.extent));
    }
    inner_ = groups_.size() - 1;
    if (!b_.p.divisible(extents_[inner_], s.vector)) no_program("its rows are no whole vectors of " + std::to_string(s.vector));
    for (const Item& item : k.body) {
      if (!item.is_loop) {
        steps_.push_back({item.id, kNoRow});
        continue;
      }
      rows_ = space_of(b_, copy_, k, k.loops[item.id].axes);
      for (int64_t row = 0; row < *b_.pool().as_number(rows_.points); ++row)
        for (const Item& inside : k.loops[item.id].body) steps_.push_back({inside.id, row});
    }
  }

  Program pointwise() {
    IndexPool& p = b_.pool();
    const bool flat = groups_.size() == 1;
    const Expr columns = extents_[inner_];
    // Threads along the inner group: no more than there are vectors.
    const auto n = p.as_number(columns);
    int64_t tx = s_.threads;
    while (!flat && n && tx > 1 && tx / 2 * s_.vector >= *n) tx /= 2;
    const int64_t ty = s_.threads / tx;
    // A thread's vectors lie along the inner group where that is long enough, else along the outer ones.
    const bool along = flat || !n || *n >= tx * s_.vector * s_.unroll;
    const int64_t ux = along ? s_.unroll : 1, uy = along ? 1 : s_.unroll;
    const size_t first = flat ? inner_ : first_row_group(ty * uy);
    const std::span<const Expr> row_extents = std::span(extents_).subspan(first, inner_ - first);
    const Expr rows = p.product(row_extents);

    b_.begin_launch();
    grid(first);
    const Expr by = b_.begin_unless_one(Bind::Grid, "b", b_.ceil_div(rows, ty * uy));
    const Expr bx = b_.begin(Bind::Grid, "b", b_.ceil_div(columns, tx * s_.vector * ux));
    const Expr y = b_.begin_unless_one(Bind::Block, "t", p.number(ty));
    const Expr x = b_.begin(Bind::Block, "t", p.number(tx));
    sweep(s_.unroll, [&](Expr u) {
      const Expr row = p.add(b_.scaled(p.add(b_.scaled(by, uy), along ? kZero : u), ty), y);
      const Expr vector = p.add(b_.scaled(p.add(b_.scaled(bx, ux), along ? u : kZero), tx), x);
      Place at{b_.scaled(vector, s_.vector), kNone};
      const std::vector<Expr> place = row_extents.size() > 1 ? p.position(row, row_extents) : std::vector<Expr>{row};
      for (size_t g = first; g < inner_; ++g) copy_.set_axis(groups_[g].inner, place[g - first]);
      at.condition = b_.both(flat ? kNone : b_.below(row, rows), b_.below(at.column, columns));
      return at;
    });
    b_.end();
    b_.end_unless_one();
    b_.end();
    b_.end_unless_one();
    end_grid(first);
    b_.end_launch();
    return std::move(b_.p);
  }

  Program transpose() {
    IndexPool& p = b_.pool();
    const size_t other = transposed_group();
    const int64_t side = s_.tile;
    b_.begin_launch();
    for (size_t i = 0; i < inner_; ++i)
      if (i != other) copy_.set_axis(groups_[i].inner, b_.begin(Bind::Grid, "b", extents_[i]));
    const Expr bi = b_.begin(Bind::Grid, "b", b_.ceil_div(extents_[other], side));
    const Expr bj = b_.begin(Bind::Grid, "b", b_.ceil_div(extents_[inner_], side));
    const Expr t = b_.begin(Bind::Block, "t", p.number(s_.threads));

    // Tiles: [place along the inner axis][place along the other one], rows a bank apart.
    for (const Item& item : k_.body) {
      const Inst& x = k_.insts[item.id];
      if (!is_tiled(x, other)) continue;
      const int bytes = type_bytes(x.type);
      const int64_t pitch = side + std::max(1, 4 / bytes);
      int64_t width = std::max<int64_t>(1, std::min<int64_t>(16 / bytes, side));
      while (width > 1 && !b_.p.divisible(extents_[other], width)) width /= 2;
      const int64_t across = side / width, down = s_.threads / across;
      if (s_.threads % across != 0 || side % down != 0) no_program("a tile is no whole number of vectors for each thread");
      const uint32_t tile = b_.buffer(k_.buffers[x.id].name + "_tile", Memory::Shared, x.type, p.number(side * pitch));
      const uint32_t held = b_.buffer(k_.buffers[x.id].name + "_t", Memory::Register, x.type, p.number(side / down * width));
      const auto place = [&](Expr q, Expr& il, Expr& jl) {
        il = b_.scaled(p.mod(t, p.number(across)), width);
        jl = p.add(b_.scaled(q, down), p.floordiv(t, p.number(across)));
        const Expr i = p.add(b_.scaled(bi, side), il), j = p.add(b_.scaled(bj, side), jl);
        copy_.set_axis(groups_[other].inner, i);
        copy_.set_axis(groups_[inner_].inner, j);
        return b_.both(b_.below(i, extents_[other]), b_.below(j, extents_[inner_]));
      };
      for (const bool loads : {true, false}) {
        const Expr q = b_.begin_unless_one(Bind::Unroll, "q", p.number(side / down));
        Expr il = kZero, jl = kZero;
        const bool opened = b_.begin_if(place(q, il, jl));
        if (loads) {
          b_.load_elements(copy_.buffer(x.id), copy_.index(x.index), held, b_.scaled(q, width), width);
        } else {
          const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(width));
          b_.store(tile, p.add(p.add(b_.scaled(jl, pitch), il), v), b_.load(held, p.add(b_.scaled(q, width), v)));
          b_.end_unless_one();
        }
        b_.end_if(opened);
        b_.end_unless_one();
      }
      tiles_[item.id] = {tile, pitch};
    }
    b_.barrier(BarrierScope::Block);

    const int64_t across = side / s_.vector, down = s_.threads / across;
    if (s_.threads % across != 0 || side % down != 0) no_program("a tile is no whole number of vectors for each thread");
    sweep(side / down, [&](Expr q) {
      jl_ = b_.scaled(p.mod(t, p.number(across)), s_.vector);
      il_ = p.add(b_.scaled(q, down), p.floordiv(t, p.number(across)));
      const Expr i = p.add(b_.scaled(bi, side), il_);
      Place at{p.add(b_.scaled(bj, side), jl_), kNone};
      copy_.set_axis(groups_[other].inner, i);
      at.condition = b_.both(b_.below(i, extents_[other]), b_.below(at.column, extents_[inner_]));
      return at;
    });
    b_.end();
    b_.end();
    b_.end();
    for (size_t i = 0; i < inner_; ++i)
      if (i != other) b_.end();
    b_.end_launch();
    return std::move(b_.p);
  }

 private:
  // An instruction at a point: outside of loops, or at a row of the one that there is.
  struct Step {
    uint32_t id;
    int64_t row;
  };
  static constexpr int64_t kNoRow = -1;
  struct Place {
    Expr column;         // along the inner group, of the vector's first element
    uint32_t condition;  // kNone: it is certainly inside
  };

  // Rows of a block are the points of the groups from this one to the inner one. One group alone may have few of them, as the
  // two halves that a rotary embedding exchanges: then most threads would find nothing to do.
  size_t first_row_group(int64_t block_rows) {
    IndexPool& p = b_.pool();
    size_t first = inner_ - 1;
    Expr rows = extents_[first];
    for (; first > 0; rows = p.mul(rows, extents_[--first])) {
      const auto known = p.as_number(rows);
      if (!known || (*known + block_rows - 1) / block_rows * block_rows <= *known + *known / 4) break;
    }
    return first;
  }

  void grid(size_t n) {
    for (size_t i = 0; i < n; ++i) copy_.set_axis(groups_[i].inner, b_.begin(Bind::Grid, "b", extents_[i]));
  }
  void end_grid(size_t n) {
    for (size_t i = 0; i < n; ++i) b_.end();
  }
  // A load along the axis `other` of what is written along the inner one.
  bool is_tiled(const Inst& x, size_t other) {
    if (!contiguous_load(k_, x, groups_[other].inner)) return false;
    const auto a = k_.pool.affine(x.index, groups_[inner_].inner);
    return a && a->coefficient != kZero && a->coefficient != kOne;
  }
  size_t transposed_group() {
    for (size_t g = 0; g < inner_; ++g)
      for (const Inst& x : k_.insts)
        if (is_tiled(x, g)) return g;
    no_program("nothing is read along another axis than it is written");
  }

  void go_to_row(const Step& step) {
    if (step.row != kNoRow) go_to(b_, copy_, rows_, b_.pool().number(step.row));
  }
  // Each run of the family's order has one row at most; results of runs are combined by halves.
  void reduce(const Step& step) {
    const Reducer r = reducer_of(k_, step.id);
    std::vector<uint32_t>& runs = runs_[step.id];
    if (step.row == 0) runs.clear();
    runs.push_back(b_.combine(r, b_.identity(r), copy_.value(k_.insts[step.id].args[0])));
    if (b_.pool().number(step.row + 1) != rows_.points) return;
    while (static_cast<int64_t>(runs.size()) < o_.fan) runs.push_back(b_.identity(r));
    copy_.set_value(step.id, b_.combine_halves(r, runs));
  }

  // `place` gives the point of vector u and sets the other axes to it.
  void sweep(int64_t unroll, const std::function<Place(Expr)>& place) {
    IndexPool& p = b_.pool();
    const uint32_t axis = groups_[inner_].inner;
    const int64_t width = s_.vector;
    std::map<size_t, uint32_t> held;  // registers of a step that loads or stores
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Inst& x = k_.insts[steps_[i].id];
      if (width == 1 && unroll == 1 && rows_.groups.empty()) break;
      if (contiguous_load(k_, x, axis)) {
        held[i] = b_.buffer(k_.buffers[x.id].name + "_v", Memory::Register, x.type, p.number(unroll * width));
      } else if (x.op == Op::Store && x.args[1] == kNone && width > 1) {
        const auto a = k_.pool.affine(x.index, axis);
        if (a && a->coefficient == kOne)
          held[i] = b_.buffer(k_.buffers[x.id].name + "_v", Memory::Register, k_.buffers[x.id].type, p.number(width));
      }
    }
    const auto inst = [&](size_t step) -> const Inst& { return k_.insts[steps_[step].id]; };
    const bool loads = std::any_of(held.begin(), held.end(), [&](const auto& h) { return inst(h.first).op == Op::Load; });
    if (loads) {
      const Expr u = b_.begin_unless_one(Bind::Unroll, "u", p.number(unroll));
      const Place at = place(u);
      copy_.set_axis(axis, at.column);
      const bool opened = b_.begin_if(at.condition);
      for (const auto& [i, registers] : held) {
        const Inst& x = inst(i);
        if (x.op != Op::Load) continue;
        go_to_row(steps_[i]);
        b_.load_elements(copy_.buffer(x.id), copy_.index(x.index), registers, b_.scaled(u, width), width);
      }
      b_.end_if(opened);
      b_.end_unless_one();
    }
    const Expr u = b_.begin_unless_one(Bind::Unroll, "u", p.number(unroll));
    const Place at = place(u);
    const bool opened = b_.begin_if(at.condition);
    const Expr v = b_.begin_unless_one(Bind::Unroll, "v", p.number(width));
    copy_.set_axis(axis, p.add(at.column, v));
    for (size_t i = 0; i < steps_.size(); ++i) {
      const Step& step = steps_[i];
      const Inst& x = inst(i);
      const auto h = held.find(i);
      go_to_row(step);
      if (const auto tile = tiles_.find(step.id); tile != tiles_.end())
        copy_.set_value(step.id, b_.load(tile->second.first, p.add(b_.scaled(p.add(jl_, v), tile->second.second), il_)));
      else if (h != held.end() && x.op == Op::Load)
        copy_.set_value(step.id, b_.load(h->second, p.add(b_.scaled(u, width), v)));
      else if (h != held.end())
        b_.store(h->second, v, copy_.value(x.args[0]));
      else if (x.op == Op::Reduce)
        reduce(step);
      else
        copy_.copy(step.id);
    }
    b_.end_unless_one();
    copy_.set_axis(axis, at.column);
    for (const auto& [i, registers] : held) {
      const Inst& x = inst(i);
      if (x.op != Op::Store) continue;
      go_to_row(steps_[i]);
      b_.store_elements(copy_.buffer(x.id), copy_.index(x.index), registers, kZero, width);
    }
    b_.end_if(opened);
    b_.end_unless_one();
  }

  Kernel& k_;
  SimtSchedule s_;
  SimtOrder o_;
  ProgramBuilder b_;
  std::vector<AxisGroup> groups_;
  KernelCopy copy_;
  std::vector<Expr> extents_;  // of the groups
  size_t inner_ = 0;
  std::vector<Step> steps_;
  Space rows_;                                              // of the loop, if there is one
  std::map<uint32_t, std::vector<uint32_t>> runs_;          // of a reduction, what its runs have
  std::map<uint32_t, std::pair<uint32_t, int64_t>> tiles_;  // of a load: shared memory, and how far rows of it are apart
  Expr il_ = kZero, jl_ = kZero;                            // inside the tile
};

}  // namespace

bool few_rows(Kernel& k, const SimtOrder& o) {
  if (k.loops.size() != 1 || !k.loops[0].across || !o.interleaved_runs || k.parallel.empty()) return false;
  Expr rows = kOne;
  for (const uint32_t a : k.loops[0].axes) rows = k.pool.mul(rows, k.pool.extent(a));
  const auto n = k.pool.as_number(rows);
  constexpr int64_t kMost = 128;  // instructions of all rows, which stand in the text one by one
  if (!n || *n < 1 || *n > o.fan || *n * static_cast<int64_t>(k.loops[0].body.size()) > kMost) return false;
  return std::all_of(k.loops[0].body.begin(), k.loops[0].body.end(), [&](const Item& item) {
    return !item.is_loop && (k.insts[item.id].op != Op::Reduce || plain_reduction(k, item.id));
  });
}

Program pointwise_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtOrder& o, const SimtAssume& a) {
  if (!k.loops.empty() && !few_rows(k, o)) no_program("it has loops");
  return PointwiseWriter(k, s, d, o, a).pointwise();
}
Program transpose_program(Kernel& k, const SimtSchedule& s, const GpuDescription& d, const SimtAssume& a) {
  if (!k.loops.empty()) no_program("it has loops");
  return PointwiseWriter(k, s, d, {}, a).transpose();
}

}  // namespace tessera::kit
