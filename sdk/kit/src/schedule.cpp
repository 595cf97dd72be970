// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/schedule.hpp"

#include <algorithm>

namespace tessera::kit {
namespace {

constexpr int64_t kChunk = 4096;           // points that one vector loop reduces, see ReduceOrder
constexpr int64_t kPointwiseBlock = 4096;  // points of a unit: 16 KiB of f32 per operand, half of an L1 for two
constexpr int kColumnRegisters =
    4;  // registers side by side when columns are reduced: a cache line or more per row and operand

constexpr int kWideColumnRegisters = 16;  // .. of simple reductions over many columns: fewer pages are touched at a time
constexpr int64_t kSplitColumns =
    1024;                             // columns of a unit of a chunk of rows: its running values fit in the second-level cache
constexpr int64_t kRowColumns = 512;  // columns of a unit that goes row by row: with 32 running values each, 64 KiB of f32
constexpr int64_t kTilePoints = 128;  // rows of a transposed tile: eight cache lines of f32
constexpr int64_t kTileLanes = 64;    // columns of it
constexpr int64_t kDoubleBufferPoints = 32,
                  kDoubleBufferLanes = 128;  // the same where blocks are double-buffered: see double_buffered()

// Registers of a value where they are shorter than a cache line. What is computed from one value mostly waits for itself:
// polynomials of exponentials and logarithms are chains of forty instructions and more, and a core looks ahead no further than
// two or three of them. Chains beside each other keep it busy, the more so the fewer lanes each has. Registers of 64 bytes gain
// from two where a function is long (AVX-512: tanh 1.12, silu 1.08 times as fast), else they gain nothing, or lose by the half
// types' conversions.
constexpr int kBeside = 4, kBesideLong = 2;
constexpr size_t kLongFunction = 45;  // instructions
constexpr int kTransposedBytes = 64;  // of a row of a tile that is transposed: a cache line

// How well an axis serves as the lanes: accesses that are contiguous along it, and those that are neither contiguous nor
// constant.
struct Fit {
  int contiguous = 0, scattered = 0;
  int score() const { return 2 * contiguous - 3 * scattered; }
};

class Chooser {
 public:
  Chooser(Kernel& k, const Device& d) : k_(k), d_(d) {}

  Schedule run() {
    Schedule s;
    const int lanes = std::max(1, d_.vector_bytes / element_bytes());
    uint32_t best = kNone;
    for (size_t i = k_.parallel.size(); i-- > 0;)  // ties: the innermost
      if (best == kNone || fit(k_.parallel[i]).score() > fit(best).score()) best = k_.parallel[i];
    if (!k_.loops.empty()) {
      const uint32_t inner = k_.loops[0].axes.back();
      const Fit row = fit(inner), column = best == kNone ? Fit{} : fit(best);
      if (best == kNone || row.score() >= column.score()) {
        s.lane_axis = inner;
        s.lanes_in_loop = true;
        s.width = beside(lanes, inner);
        s.split = splits();
        return s;
      }
      s.lane_axis = best;
      const auto columns = k_.pool.as_number(k_.pool.extent(best));
      if (k_.loops.size() == 1 && (!columns || *columns >= int64_t{4} * lanes) && plain_reductions()) {
        s.row_by_row = true;
        s.width = lanes;
        s.block = kRowColumns;
        if (columns) {  // equal shares
          const int64_t shares = d_.cores * ((*columns + d_.cores * kRowColumns - 1) / (d_.cores * kRowColumns));
          s.block = ((*columns + shares - 1) / shares + lanes - 1) / lanes * lanes;
          if ((s.split = splits_rows(best)))
            s.block = std::min((*columns + lanes - 1) / lanes * lanes, kSplitColumns / lanes * lanes);
        }
        return s;
      }
      const bool wide = columns && *columns >= 2LL * d_.cores * lanes * kWideColumnRegisters && simple();
      s.width = shrink(lanes * (wide ? kWideColumnRegisters : kColumnRegisters), best);
      s.block = s.width;
      return s;
    }
    if (best == kNone) return s;
    s.lane_axis = best;
    for (const uint32_t a : k_.parallel)
      if (a != best && transposed(a, best)) s.tile_axis = a;
    if (s.tile_axis != kNone) {
      s.width = shrink(d_.vector_bytes == 32 ? kTransposedBytes / element_bytes() : lanes, best);
      s.tile_points = kTilePoints;
      s.block = std::max<int64_t>(s.width, kTileLanes / s.width * s.width);
      // A step computes one row of the block, and copies four lanes of the next block meanwhile. Vectors of four lanes would
      // read each line in four parts.
      static_assert(kDoubleBufferLanes == 4 * kDoubleBufferPoints);
      const Holds ahead = s.width >= 8 && s.width <= kDoubleBufferPoints ? shares_sets(s.tile_axis, best) : Holds::Never;
      if (ahead == Holds::Always) s = double_buffered(s);
      if (ahead == Holds::AtLaunch) s.double_buffer_bytes = d_.l3_bytes;
      return s;
    }
    s.width = beside(lanes, best);
    s.block = (kPointwiseBlock + s.width - 1) / s.width * s.width;
    // A row of few points is one unit.
    if (const auto n = k_.pool.as_number(k_.pool.extent(best)); n && *n <= 2 * s.block)
      s.block = std::max<int64_t>(s.width, (*n + s.width - 1) / s.width * s.width);
    return s;
  }

 private:
  // Of what is mostly computed: vectors hold 4-byte lanes unless buffers of 8-byte elements are as many.
  int element_bytes() const {
    int wide = 0, other = 0;
    for (const Buffer& b : k_.buffers) (type_bytes(b.type) == 8 ? wide : other)++;
    return wide > other ? 8 : 4;
  }

  Fit fit(uint32_t axis) {
    Fit f;
    for (const Inst& x : k_.insts) {
      if (x.op != Op::Load && x.op != Op::Store) continue;
      const auto a = k_.pool.affine(x.index, axis);
      if (!a)
        ++f.scattered;
      else if (a->coefficient == kOne)
        ++f.contiguous;
      else if (a->coefficient != kZero)
        ++f.scattered;
    }
    return f;
  }

  // Is some access contiguous along `a` and scattered along the lanes?
  bool transposed(uint32_t a, uint32_t lane) {
    for (const Inst& x : k_.insts) {
      if (x.op != Op::Load && x.op != Op::Store) continue;
      const auto along = k_.pool.affine(x.index, a), lanes = k_.pool.affine(x.index, lane);
      if (along && lanes && along->coefficient == kOne && lanes->coefficient != kOne && lanes->coefficient != kZero)
        return true;
    }
    return false;
  }

  // One operand of four or two bytes is read across the lanes, its rows a multiple of 4 or 2 KiB apart, in whole blocks, and
  // all of the kernel's tensors stay in the caches: sixteen lines of a set at a time then cost more than copying them line
  // beside line first. Memory beyond is slower than either.
  enum class Holds { Never, AtLaunch, Always };
  Holds shares_sets(uint32_t tile, uint32_t lane) {
    bool known = true;
    const auto multiple = [&](Expr e, int64_t of) {
      const auto n = k_.pool.as_number(e);
      known = known && n;
      return !n || *n % of == 0;
    };
    if (!multiple(k_.pool.extent(tile), kDoubleBufferPoints) || !multiple(k_.pool.extent(lane), kDoubleBufferLanes))
      return Holds::Never;
    int64_t bytes = 0;
    for (const Buffer& b : k_.buffers) {
      const auto n = k_.pool.as_number(b.extent);
      known = known && n;
      if (!n) continue;
      if (*n > d_.l3_bytes) return Holds::Never;
      bytes += *n * type_bytes(b.type);
    }
    if (bytes > d_.l3_bytes) return Holds::Never;
    int across = 0;
    for (const Inst& x : k_.insts) {
      if (x.op != Op::Load && x.op != Op::Store) continue;
      const auto along = k_.pool.affine(x.index, tile), step = k_.pool.affine(x.index, lane);
      if (!along || !step || along->coefficient != kOne || step->coefficient == kZero) continue;
      std::vector<uint32_t> values;  // an index that depends on them is no block of memory
      k_.pool.collect(x.index, AtomKind::Value, values);
      if (x.op == Op::Store || k_.buffers[x.id].access != Access::In || x.args[0] != kNone) return Holds::Never;
      const int bytes_each = type_bytes(x.type);
      if ((bytes_each != 4 && bytes_each != 2) || x.type == Type::Bool || !values.empty()) return Holds::Never;
      if (!multiple(step->coefficient, same_set(bytes_each) / bytes_each)) return Holds::Never;
      ++across;
    }
    return across != 1 ? Holds::Never : known ? Holds::Always : Holds::AtLaunch;
  }

  // Their running values can be in memory: few, each with one value.
  bool plain_reductions() const {
    int n = 0;
    for (const Inst& x : k_.insts) {
      if (x.op != Op::Reduce) continue;
      const auto kind = static_cast<ReduceKind>(x.id);
      if (kind > ReduceKind::All && kind != ReduceKind::Dot) return false;
      ++n;
    }
    return n > 0 && n <= 3;
  }

  // Little is computed per element, so that values as wide as several registers do no harm.
  bool simple() const {
    size_t n = 0;
    for (const Inst& x : k_.insts) {
      if (x.op == Op::Call) return false;
      n += x.op != Op::Const;
    }
    return n <= 8;
  }

  // A long function of f32: its operations wait for each other for longer than the processor looks ahead.
  bool waits() const {
    return std::any_of(k_.insts.begin(), k_.insts.end(), [](const Inst& x) {
      if (x.op != Op::Call) return false;
      const std::vector<Inst>& steps = function(x.id).insts;
      return steps.size() >= kLongFunction &&
             std::all_of(steps.begin(), steps.end(), [](const Inst& s) { return s.type != Type::F64; });
    });
  }

  // Several registers side by side, unless that leaves much of the last of them empty.
  int beside(int lanes, uint32_t axis) {
    if (d_.vector_bytes >= 64) return shrink(waits() ? kBesideLong * lanes : lanes, axis);
    const auto n = k_.pool.as_number(k_.pool.extent(axis));
    int width = lanes * kBeside;
    while (n && width > lanes && *n < int64_t{8} * width && *n % width != 0) width /= 2;
    return shrink(width, axis);
  }

  // No more lanes than there are points.
  int shrink(int lanes, uint32_t axis) {
    const auto n = k_.pool.as_number(k_.pool.extent(axis));
    while (n && lanes > 1 && lanes / 2 >= *n) lanes /= 2;
    return lanes;
  }

  // A long reduction of columns side by side: chunks of rows for each core, so that all of a row is read at once. Its columns
  // apart would be stretches that lie a row apart, and memory far away gives half of what it has for those.
  bool splits_rows(uint32_t lane_axis) {
    if (d_.cores < 2 || k_.loops[0].axes.size() != 1) return false;
    const auto n = k_.pool.as_number(k_.pool.extent(k_.loops[0].axes[0]));
    if (!n || *n < d_.cores * kChunk) return false;
    std::vector<uint8_t> varies(k_.insts.size(), 0);
    for (uint32_t i = 0; i < k_.insts.size(); ++i) {
      const Inst& x = k_.insts[i];
      for (const uint32_t a : x.args) varies[i] |= a != kNone && varies[a];
      if (x.op == Op::Index || x.op == Op::Load || x.op == Op::Store) {
        std::vector<uint32_t> values;
        k_.pool.collect(x.index, AtomKind::Value, values);
        varies[i] |= k_.pool.uses(x.index, AtomKind::Axis, lane_axis);
        for (const uint32_t v : values) varies[i] |= varies[v];
      }
    }
    return std::all_of(k_.loops[0].body.begin(), k_.loops[0].body.end(), [&](const Item& i) {
      const Inst& x = k_.insts[i.id];
      return !i.is_loop && x.op != Op::Store && x.op != Op::Check && (x.op != Op::Reduce || varies[i.id]);
    });
  }

  // One long reduction and too few rows to keep the cores busy.
  bool splits() {
    if (k_.loops.size() != 1 || k_.loops[0].axes.size() != 1) return false;
    const auto e = k_.pool.as_number(k_.pool.extent(k_.loops[0].axes[0]));
    if (e && *e < 4 * kChunk) return false;
    Expr rows = kOne;
    for (const uint32_t a : k_.parallel) rows = k_.pool.mul(rows, k_.pool.extent(a));
    const auto n = k_.pool.as_number(rows);
    if (!n || *n >= 4 * d_.cores || d_.cores < 2) return false;
    for (const Item& i : k_.loops[0].body) {
      const Inst& x = k_.insts[i.id];
      if (x.op == Op::Store || x.op == Op::Check) return false;
      if (x.op == Op::Reduce &&
          (x.id == static_cast<uint32_t>(ReduceKind::ArgMax) || x.id == static_cast<uint32_t>(ReduceKind::ArgMin)))
        return false;
    }
    return true;
  }

  Kernel& k_;
  const Device& d_;
};

}  // namespace

Schedule double_buffered(Schedule s) {
  s.double_buffers = true;
  s.tile_points = kDoubleBufferPoints;
  s.block = kDoubleBufferLanes;
  return s;
}

Schedule choose_schedule(Kernel& k, const Device& device) { return Chooser(k, device).run(); }

}  // namespace tessera::kit
