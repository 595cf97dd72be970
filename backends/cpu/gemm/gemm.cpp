// SPDX-License-Identifier: Apache-2.0
#include "gemm.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "shares.hpp"
#include "tessera/caches.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace cpu {
namespace {

namespace sdk = tessera::sdk;

constexpr int64_t kLine = 64;
int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t level2_bytes() {
  static const int64_t bytes = tessera::cache_bytes(2, int64_t{512} << 10);
  return bytes;
}

// How K is cut: equal pieces of at most about kc.
struct Cut {
  int64_t k, padded, piece;
  Cut(const GemmIsa& isa, int64_t depth) : k(depth), padded(std::max<int64_t>(isa.k_unit, round_up(depth, isa.k_unit))) {
    const int64_t pieces = std::max<int64_t>(1, ceil_div(padded, isa.kc + isa.kc / 4));
    piece = std::max<int64_t>(isa.k_unit, round_up(ceil_div(padded, pieces), std::max<int64_t>(isa.k_unit, 8)));
  }
};

// How M is cut into tiles of nearly equal height, and tiles into blocks whose piece of A fits in half of the second-level
// cache.
struct Rows {
  int64_t m, unit, groups, tiles, base, extra, per_block, blocks;
  // `least`: of blocks, where rows suffice to give each some work behind a panel that is made for it; 0: as many as fit.
  // `slots`: threads that are to have rows of their own, see `apart`; 0: they share all rows. Then blocks are packed by whoever
  // multiplies them, all of K at once: they are cut by that.
  Rows(const GemmIsa& isa, int64_t rows, const Cut& cut, int64_t least, int64_t slots) : m(rows), unit(isa.row_unit) {
    const int64_t units = ceil_div(m, unit);
    groups = apart(ceil_div(units * unit, isa.mr), slots);
    tiles = round_up(ceil_div(units * unit, isa.mr), groups);
    base = units / tiles;
    extra = units % tiles;
    constexpr int64_t kBehindPanel = 8, kLeastOwn = 12;
    const int64_t fit = level2_bytes() / 2 / (isa.mr * (slots > 0 ? cut.padded : cut.piece) * isa.packed_bytes);
    blocks = least > 0 ? std::clamp<int64_t>(least, 1, std::max<int64_t>(1, tiles / kBehindPanel))
                       : ceil_div(tiles, std::max<int64_t>(slots > 0 ? kLeastOwn : 4, fit));
    blocks = round_up(blocks, groups);
    per_block = ceil_div(tiles, blocks);
    blocks = ceil_div(tiles, per_block);
  }
  // How many groups of threads have rows of their own, a divisor of `slots`: what reads or makes a row before and after cuts
  // them in the same way, so a row stays in the caches of one core, where sharing all rows brings half of them from another's.
  // Each group walks through all of B for it, which pays from four tiles on.
  static int64_t apart(int64_t tiles, int64_t slots) {
    constexpr int64_t kLeastTiles = 4;
    int64_t groups = std::max<int64_t>(1, slots);
    while (groups > 1 && (slots % groups != 0 || tiles < kLeastTiles * groups)) --groups;
    return groups;
  }
  int64_t first_row(int64_t tile) const { return (tile * base + std::min(tile, extra)) * unit; }
  int height(int64_t tile) const { return static_cast<int>((base + (tile < extra ? 1 : 0)) * unit); }
  int rows_of(int64_t tile) const { return static_cast<int>(std::min<int64_t>(height(tile), m - first_row(tile))); }
  int64_t padded() const { return (tiles * base + extra) * unit; }
};

// Columns between two walks over the pieces of K: their sums wait in a block of this many bytes at most.
constexpr int64_t kWaiting = 192 << 10;

// Neighbouring panels that are made on the way are multiplied together: each tile of rows meets all of them before the next one
// does, so that rows of the result, and of what is added to them, are walked in stretches of a kilobyte.
constexpr int64_t kTogether = 8, kTogetherBytes = 256 << 10;

// Bytes that a thread packs beforehand at least: models have many small weights, and waking threads for each takes longer than
// they do.
constexpr int64_t kPackAtOnce = int64_t{1} << 20;

// Units of work that a thread takes on average: enough to even out what else the machine does.
constexpr int64_t kUnitsPerSlot = 4;

struct Plan {
  const GemmIsa& isa;
  Cut cut;
  int64_t panels;  // of isa.nr columns
  Rows rows;
  int64_t group;   // panels at a time
  bool one_piece;  // all of K: then no sums wait
  bool whole_b;    // B is packed as a whole first: its panels are read by more than one block of rows
  // Pieces that a panel with a block of rows may be cut into, by tiles: threads that are done share what others have not begun.
  int64_t parts, part_tiles;
  // Threads pack the blocks of rows that they multiply right before they do, in memory of their own, so that they find them in
  // their caches. Few threads share a block, or each would pack for little. Otherwise A is packed as a whole first.
  bool own_a;
  int64_t a_bytes, b_bytes, slot_bytes, bias_bytes;
  int64_t sums_bytes, made_bytes;  // of a slot: sums, and a panel that is made on the way
  int64_t own_at;                  // of a slot: where its block of rows is
  int64_t total(int slots) const { return a_bytes + b_bytes + bias_bytes + slots * slot_bytes; }

  Plan(const GemmIsa& kernels, int64_t batch, int64_t m, int64_t n, int64_t k, GemmForm form, int slots)
      : isa(kernels),
        cut(kernels, k),
        panels(ceil_div(n, kernels.nr)),
        // A panel that is made on the way is made once, for all rows, unless that leaves too few units for the threads.
        rows(kernels, std::max<int64_t>(1, m), cut,
             form.panel ? ceil_div(kUnitsPerSlot * slots, std::max<int64_t>(1, batch * panels)) : 0,
             form.packed_b ? slots : 0) {
    const int64_t block_rows = rows.height(0) * rows.per_block;
    one_piece = cut.piece >= cut.padded;
    const int64_t panel_bytes = round_up(cut.piece * isa.nr * isa.packed_bytes + 256, kLine);
    group = group_of(batch, form, panel_bytes, block_rows, slots);
    // Some 2 us of work at least; a panel that is made on the way is made again for each part.
    constexpr int64_t kLeastCycles = 8192, kMostParts = 8, kBehindMade = 4;
    const int64_t tile_cycles = cut.padded * 2 * isa.mr,
                  least = std::max<int64_t>(form.panel ? kBehindMade : 1, ceil_div(kLeastCycles, tile_cycles));
    part_tiles = std::max(least, ceil_div(rows.per_block, kMostParts));
    parts = ceil_div(rows.per_block, part_tiles);
    whole_b = !form.packed_b && !form.panel && rows.blocks > 1;
    constexpr int64_t kMostForBlock = 4;
    own_a = form.packed_b && !form.packed_a && slots <= kMostForBlock * rows.groups;
    a_bytes = form.packed_a || own_a ? 0 : round_up(batch * left_bytes(), kLine);
    b_bytes = whole_b ? round_up(batch * packed_matrix_bytes(isa, n, k), kLine) : 0;
    bias_bytes = round_up(panels * isa.nr * 4, kLine);
    sums_bytes = round_up((one_piece ? isa.mr : group * block_rows) * isa.nr * 4, kLine);
    made_bytes = form.packed_b || whole_b ? 0 : panel_bytes;
    own_at = sums_bytes + made_bytes * (form.panel ? group : 1);
    slot_bytes = own_at + (own_a ? round_up(block_rows * cut.padded * isa.packed_bytes + 64, kLine) : 0);
  }
  // Panels that are made on the way: as many as are multiplied together, of what a unit of work leaves a thread. Others one by
  // one, unless their sums wait between the pieces of K: then as many as fit.
  int64_t group_of(int64_t batch, GemmForm form, int64_t panel_bytes, int64_t block_rows, int slots) const {
    if (one_piece && !form.panel) return 1;
    const int64_t waiting = one_piece ? panels : kWaiting / (block_rows * isa.nr * 4),
                  most = std::clamp<int64_t>(waiting, 1, std::max<int64_t>(1, panels));
    if (!form.panel) return most;
    const int64_t together = std::clamp<int64_t>(kTogetherBytes / panel_bytes, 1, kTogether);
    return std::max<int64_t>(1, std::min({batch * panels / (kUnitsPerSlot * slots), most, together}));
  }
  // Of one batch entry of A.
  int64_t left_bytes() const { return round_up(rows.padded() * cut.padded * isa.packed_bytes + 64, kLine); }
};

// Packs K range [k0, k0 + count) of rows (or columns) at `rows_at`; the nest of K may have outer loops, whose offsets `which`
// selects.
void pack_range(void (*pack)(const PackArgs&), const GemmIsa& isa, const void* src, uint32_t dtype, const int64_t* rows_at,
                int rows, int height, const Nest<2>& k, int which, int64_t k0, int64_t count, int64_t padded, char* out) {
  const int64_t inner = k.rank == 0 ? 1 : k.sizes[k.rank - 1], step = k.rank == 0 ? 1 : k.strides[which][k.rank - 1];
  PackArgs p{src, dtype, rows_at, rows, height, step, 0, out};
  if (k.rank <= 1) {
    p.src = static_cast<const char*>(src) + k0 * step * tessera::dtype_bits(dtype) / 8;
    p.k = count;
    pack(p);
  } else {  // bf16 kernels come here with one loop only: pairs must not straddle two runs
    int64_t moved[64];
    for (int64_t done = 0; done < count;) {
      const int64_t at = k0 + done, run = std::min(inner - at % inner, count - done);
      int64_t offset[2];
      k.at(at, offset);
      for (int r = 0; r < rows; ++r) moved[r] = rows_at[r] + offset[which];
      p.rows_at = moved;
      p.k = run;
      p.out = out + done * height * isa.packed_bytes;
      pack(p);
      done += run;
    }
  }
  // The zeros behind the end of K. Both forms of bf16 leave their last pair or row of 32 complete.
  const int64_t have = isa.bf16 ? (pack == isa.pack_a && isa.row_unit > 1 ? round_up(count, 32) : round_up(count, 2)) : count;
  if (have < padded)
    std::memset(out + have * height * isa.packed_bytes, 0, static_cast<size_t>((padded - have) * height * isa.packed_bytes));
}

void pack_panel(const GemmIsa& isa, const void* b, uint32_t dtype, const Nest<1>& n, int64_t columns, const Nest<2>& k,
                int64_t panel, int64_t k0, int64_t count, int64_t padded, char* out) {
  int64_t at[64];
  const int cols = static_cast<int>(std::min<int64_t>(isa.nr, columns - panel * isa.nr));
  for (int j = 0; j < cols; ++j) {
    int64_t o[1];
    n.at(panel * isa.nr + j, o);
    at[j] = o[0];
  }
  pack_range(isa.pack_b, isa, b, dtype, at, cols, isa.nr, k, 1, k0, count, padded, out);
}

void pack_one_tile(const GemmIsa& isa, const void* a, uint32_t dtype, const Nest<1>& m, const Nest<2>& k, const Cut& cut,
                   const Rows& rows_of, int64_t tile, char* out) {
  int64_t at[64];
  const int rows = rows_of.rows_of(tile);
  for (int r = 0; r < rows; ++r) {
    int64_t o[1];
    m.at(rows_of.first_row(tile) + r, o);
    at[r] = o[0];
  }
  pack_range(isa.pack_a, isa, a, dtype, at, rows, rows_of.height(tile), k, 0, 0, cut.k, cut.padded, out);
}

class Run {
 public:
  Run(const Gemm& g, void* workspace, int slots)
      : g_(g),
        isa_(*g.isa),
        m_(g.m.total()),
        n_(g.n.total()),
        k_(g.k.total()),
        batches_(g.batch.total()),
        plan_(*g.isa, batches_, m_, n_, k_,
              {g.packed_a != nullptr, g.packed_b != nullptr, g.panel != nullptr, g.transposed != 0}, slots),
        slots_(threads(slots)),
        shares_(units(), slots_) {
    char* w = static_cast<char*>(workspace);
    a_ = w, w += plan_.a_bytes;
    b_ = w, w += plan_.b_bytes;
    bias_ = reinterpret_cast<float*>(w), w += plan_.bias_bytes;
    scratch_ = w;
    done_ = done();
  }

  void operator()() {
    if (batches_ * m_ * n_ == 0) return;
    widen_bias();
    if (!g_.packed_a && !plan_.own_a)
      each(batches_ * plan_.rows.tiles, [this](int64_t t) {
        const int64_t batch = t / plan_.rows.tiles, tile = t % plan_.rows.tiles;
        pack_tile(batch, tile, const_cast<char*>(a_tile(batch, tile)));
      });
    if (plan_.whole_b) each(batches_ * plan_.panels, [this](int64_t p) { pack_whole(p); });
    sdk::parallel(slots_, 1, [this](int64_t begin, int64_t end) {
      if (isa_.begin) isa_.begin();
      for (int64_t s = begin; s < end; ++s) slot(s);
      if (isa_.end) isa_.end();
    });
  }

 private:
  template <class F>
  void each(int64_t n, F&& f) {
    sdk::parallel(n, std::max<int64_t>(1, ceil_div(n, slots_)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
  }

  void widen_bias() {
    if (!g_.bias || g_.epilogue || g_.transposed) return;
    for (int64_t j = 0; j < n_; ++j)
      bias_[j] = tessera::load_as<float>(static_cast<tsr_dtype>(g_.bias_dtype), g_.bias, j * g_.bias_stride);
  }

  // Some 20 us of work for a thread at least: of arithmetic, or of fetching a right side that few rows share.
  int64_t threads(int most) const {
    const double size = static_cast<double>(batches_) * static_cast<double>(n_) * static_cast<double>(k_ + 1);
    const double worth =
        std::max(2 * size * static_cast<double>(m_) / 2e6, size * static_cast<double>(isa_.packed_bytes) / 2e5);
    return std::min<int64_t>({most, sdk::host().core->num_threads(), units(), static_cast<int64_t>(worth) + 1});
  }

  int64_t units() const { return batches_ * plan_.rows.blocks * plan_.panels * plan_.parts; }

  const void* a_of(int64_t batch) const { return moved(g_.a, g_.a_dtype, batch, 0); }
  const void* b_of(int64_t batch) const { return moved(g_.b, g_.b_dtype, batch, 1); }
  const void* moved(const void* base, uint32_t dtype, int64_t batch, int which) const {
    int64_t at[2];
    g_.batch.at(batch, at);
    return static_cast<const char*>(base) + at[which] * tessera::dtype_bits(dtype) / 8;
  }

  // Tiles of A lie one after the other, each with all of K.
  const char* a_tile(int64_t batch, int64_t tile) const {
    const char* base = g_.packed_a ? static_cast<const char*>(g_.packed_a) : a_;
    if (g_.packed_a) batch %= g_.packed_a_count;
    return base + batch * plan_.left_bytes() + bytes_before(tile);
  }
  int64_t bytes_before(int64_t tile) const { return plan_.rows.first_row(tile) * plan_.cut.padded * isa_.packed_bytes; }

  // A slot's block of rows: which tiles of which one are there.
  struct Own {
    char* at;  // of the block's first tile
    int64_t batch = -1, block = -1, from = 0, to = 0;
  };
  void pack_own(Own& own, int64_t batch, int64_t block, int64_t first, int64_t last) const {
    if (own.batch != batch || own.block != block || first < own.from || first > own.to)
      own = {own.at, batch, block, first, first};
    const int64_t before = bytes_before(block * plan_.rows.per_block);
    for (; own.to < last; ++own.to) pack_tile(batch, own.to, own.at + bytes_before(own.to) - before);
  }

  void pack_tile(int64_t batch, int64_t tile, char* to) const {
    const Rows& rows = plan_.rows;
    if (g_.row_source)
      return g_.row_source(g_.source_context, rows.first_row(tile), rows.rows_of(tile), reinterpret_cast<float*>(to));
    pack_one_tile(isa_, a_of(batch), g_.a_dtype, g_.m, g_.k, plan_.cut, rows, tile, to);
  }

  int64_t panel_bytes() const { return plan_.cut.padded * isa_.nr * isa_.packed_bytes; }

  void pack_whole(int64_t index) {
    const int64_t batch = index / plan_.panels, panel = index % plan_.panels;
    pack_panel(isa_, b_of(batch), g_.b_dtype, g_.n, n_, g_.k, panel, 0, k_, plan_.cut.padded, b_ + index * panel_bytes());
  }

  void slot(int64_t s) {
    char* scratch = scratch_ + s * plan_.slot_bytes;
    Own own{scratch + plan_.own_at};
    const int64_t blocks = plan_.rows.blocks;
    // Blocks of rows of a panel that is made on the way follow each other: whoever made it has what it is made of. With few
    // panels each thread takes rows, as what follows cuts small planes, and makes all panels.
    const bool by_panel = g_.panel && blocks > 1 && plan_.panels >= kUnitsPerSlot * slots_;
    const int64_t parts = plan_.parts, most = by_panel ? 1 : plan_.group,
                  chunk = std::clamp<int64_t>(units() / parts / (slots_ * kUnitsPerSlot), 1, most);
    // Who computes what does not change any sum.
    for (int64_t u, end; shares_.take(s, chunk * parts, parts, &u, &end);)
      while (u < end) {
        const int64_t unit = u / parts, panel = by_panel ? unit / blocks % plan_.panels : unit % plan_.panels,
                      block = by_panel ? unit % blocks : unit / plan_.panels % blocks, batch = unit / plan_.panels / blocks;
        const int64_t part = u % parts, behind = std::min(parts, part + end - u),
                      count = behind - part < parts ? 1 : std::min({plan_.panels - panel, (end - u) / parts, most});
        columns(batch, block, part * plan_.part_tiles, behind * plan_.part_tiles, panel, count, scratch, own);
        u += count > 1 ? count * parts : behind - part;
      }
  }

  // A tile of the result: its first row and column. No rows: none.
  struct Place {
    int64_t row = 0, col = 0;
    int rows = 0;
  };

  // What is read after a panel: each of its tiles fetches its share of that; with one tile, what follows in the same panel.
  // Packed weights come from far away: the nearest caches' own look-ahead is too short for them.
  struct After {
    const char* next;
    int64_t step;  // bytes for each k
  };

  // A panel of the right side on its way through the tiles of a block: packed, or as it lies in memory.
  struct Side {
    const char* b;
    const float* rows_b;
    int cols;
    After after;
  };

  // Tiles [from_tile, to_tile) of a block of rows against `count` panels.
  void columns(int64_t batch, int64_t block, int64_t from_tile, int64_t to_tile, int64_t panel, int64_t count, char* scratch,
               Own& own) {
    const Rows& rows = plan_.rows;
    const int64_t begin = block * rows.per_block, first = begin + from_tile,
                  last = std::min({rows.tiles, begin + rows.per_block, begin + to_tile});
    if (first >= last) return;
    if (plan_.own_a) pack_own(own, batch, block, first, last);
    const char* const left = plan_.own_a ? own.at + bytes_before(first) - bytes_before(begin) : a_tile(batch, first);
    const int64_t block_rows = rows.height(0) * rows.per_block;
    float* sums = reinterpret_cast<float*>(scratch);
    const int64_t together = g_.panel ? count : 1;
    Side sides[kTogether];
    for (int64_t k0 = 0; k0 < plan_.cut.padded; k0 += plan_.cut.piece) {
      const int64_t k = std::min(plan_.cut.piece, plan_.cut.padded - k0);
      for (int64_t from = 0; from < count; from += together) {
        if (g_.panel && !g_.rows_b) make(batch, panel + from, together, k0, k, scratch + plan_.sums_bytes);
        for (int64_t i = 0; i < together; ++i) {
          sides[i] = side(batch, panel + from + i, k0, k, scratch + plan_.sums_bytes + i * plan_.made_bytes);
          sides[i].after = after(batch, sides[i].b, panel, from + i, count, k0, k, last - first);
        }
        const auto place = [&](int64_t t, int64_t i) -> Place {
          if (i == together) ++t, i = 0;
          return t == last ? Place{} : Place{rows.first_row(t), (panel + from + i) * isa_.nr, rows.rows_of(t)};
        };
        Place at = place(first, 0);
        for (int64_t t = first; t < last; ++t)
          for (int64_t i = 0; i < together; ++i) {
            const Place next = place(t, i + 1);
            const int64_t waiting = plan_.one_piece ? 0 : (from + i) * block_rows + rows.first_row(t) - rows.first_row(first);
            tile(batch, t, left + bytes_before(t) - bytes_before(first), at, k0, k, sides[i], sums + waiting * isa_.nr, next);
            at = next;
            sides[i].after.next += sides[i].after.step * k;
          }
      }
    }
  }

  // K range [k0, k0 + k) of `count` panels.
  void make(int64_t batch, int64_t panel, int64_t count, int64_t k0, int64_t k, char* to) const {
    const int64_t col = panel * isa_.nr, have = std::min(k, k_ - k0), step = plan_.made_bytes / 4;
    const int cols = static_cast<int>(std::min(count * isa_.nr, n_ - col));
    float* out = reinterpret_cast<float*>(to);
    g_.panel(g_.source_context, batch, col, cols, k0, have, out, step);
    if (have == k) return;
    for (int64_t i = 0; i < count; ++i)
      std::memset(out + i * step + have * isa_.nr, 0, static_cast<size_t>((k - have) * isa_.nr * 4));
  }

  // K range [k0, k0 + k) of a panel. `packed`: where it is, or is to be, if it is neither packed beforehand nor read where it
  // lies.
  Side side(int64_t batch, int64_t panel, int64_t k0, int64_t k, char* packed) const {
    const int64_t col = panel * isa_.nr;
    Side s{nullptr, nullptr, static_cast<int>(std::min<int64_t>(isa_.nr, n_ - col)), {}};
    if (g_.rows_b && col + isa_.nr <= n_) {
      s.rows_b = g_.rows_b + batch * g_.rows_b_batch + k0 * g_.rows_b_ld + col;
    } else if (g_.packed_b || plan_.whole_b) {
      s.b = panel_at(batch, panel) + k0 * isa_.nr * isa_.packed_bytes;
    } else if (g_.panel) {
      if (g_.rows_b) make(batch, panel, 1, k0, k, packed);
      s.b = packed;
    } else {
      pack_panel(isa_, b_of(batch), g_.b_dtype, g_.n, n_, g_.k, panel, k0, std::min(k, k_ - k0), k, packed);
      s.b = packed;
    }
    return s;
  }

  // The tile t of rows, which lies at `left`, times one panel, in K range [k0, k0 + k); with the last range it is stored.
  // `sums`: where it waits until then. `next`: the tile after this one.
  void tile(int64_t batch, int64_t t, const char* left, Place at, int64_t k0, int64_t k, const Side& s, float* sums,
            Place next) const {
    const Rows& rows = plan_.rows;
    const int height = rows.height(t);
    const char* a = left + k0 * height * isa_.packed_bytes;
    const auto [row, col, have] = at;
    const int64_t out = (batch * m_ + row) * n_ + col;
    const bool last = k0 + k >= plan_.cut.padded, whole = s.cols == isa_.nr && have == height;
    if (s.rows_b) fetch_operands(batch, next, 0);
    const bool in_place = whole && plain_ && !done_;
    Prefetch prefetch;  // not of columns as they lie
    if (!s.rows_b) {
      prefetch = Prefetch::only(s.after.next, s.after.step, sums);
      if (plan_.cut.padded < kShort)
        prefetch_short(batch, next, prefetch);
      else if (last || in_place)
        prefetch_results(batch, at, k0 > 0 ? sums : nullptr, prefetch);
      else
        prefetch.lines[0] = lines(sums, {0, 0, isa_.nr}, sizeof(float));
    }
    if (whole && last && done_) {
      DoneArgs d = *done_;
      d.out = static_cast<float*>(g_.c) + out;
      if (k0 > 0) d.sums = sums;
      if (d.bias) d.bias += col;
      if (g_.row_bias) d.row_bias = g_.row_bias + batch % g_.row_bias_count * m_ + row;
      if (d.other) d.other += out;
      if (s.rows_b)
        isa_.micro[height].done_at(k, a, s.rows_b, g_.rows_b_ld, d);
      else
        isa_.micro[height].done(k, a, reinterpret_cast<const float*>(s.b), d, prefetch);
      if (s.rows_b) fetch_operands(batch, next, 1);
      return;
    }
    if (in_place) return multiply(height, k, a, s, static_cast<float*>(g_.c) + out, n_, k0 > 0, prefetch);
    multiply(height, k, a, s, sums, isa_.nr, k0 > 0, prefetch);
    if (s.rows_b) fetch_operands(batch, next, 1);
    if (!last) return;
    if (g_.epilogue) {
      const TileArgs args{sums, isa_.nr, batch, row, col, have, s.cols, g_.context};
      return g_.epilogue(&args);
    }
    if (g_.transposed) return store_transposed(sums, row, col, have, s.cols);
    const int64_t rows_before = batch % g_.row_bias_count * m_ + row;
    isa_.store({sums, isa_.nr, have, s.cols, g_.bias ? bias_ + col : nullptr, g_.row_bias ? g_.row_bias + rows_before : nullptr,
                static_cast<char*>(g_.c) + out * tessera::dtype_bits(g_.c_dtype) / 8, g_.c_dtype, n_},
               {n_, out, rows_before, col, g_.steps, g_.num_steps});
  }

  // Where element 0 of a tile of the result lies, and its lines: the second line of a row beside the first, or, transposed, two
  // columns at a time.
  struct Lie {
    int64_t at, beside, step;  // elements; beside 0: the next line
  };
  Lie lie(int64_t batch, Place p) const {
    if (!g_.transposed) return {(batch * m_ + p.row) * n_ + p.col, 0, n_};
    return {(p.row / g_.transposed * n_ + p.col) * g_.transposed + p.row % g_.transposed, g_.transposed, 2 * g_.transposed};
  }
  Prefetch::Lines lines(const void* base, const Lie& l, int64_t bytes) const {
    const int64_t second = isa_.nr * bytes > kLine ? kLine : 0;
    return {static_cast<const char*>(base) + l.at * bytes, l.beside ? l.beside * bytes : second, l.step * bytes};
  }
  // What is added to results at their own places; null: nothing.
  const float* added() const {
    for (int i = 0; i < g_.num_steps; ++i)
      if (g_.steps[i].mode == FinishStep::kDense && g_.steps[i].data) return g_.steps[i].data;
    return nullptr;
  }

  // The lines of a tile of the result, and of what is added to it; if nothing is, of the sums that wait for it.
  void prefetch_results(int64_t batch, Place p, const float* sums, Prefetch& prefetch) const {
    if (sums) prefetch.lines[1] = lines(sums, {0, 0, isa_.nr}, sizeof(float));
    if (g_.epilogue) return;
    const Lie l = lie(batch, p);
    prefetch.lines[0] = lines(g_.c, l, tessera::dtype_bits(g_.c_dtype) / 8);
    if (added_) prefetch.lines[1] = lines(added_, l, sizeof(float));
  }

  // Where K is short, what is added to a tile would come too late, so it is asked for a tile earlier. Results do not wait for
  // each other there.
  static constexpr int64_t kShort = 96;
  void prefetch_short(int64_t batch, Place next, Prefetch& prefetch) const {
    if (added_ && next.rows > 0) prefetch.lines[1] = lines(added_, lie(batch, next), sizeof(float));
  }

  // Half of what is added to a tile, at once: as much as the first-level cache can wait for.
  void fetch_operands(int64_t batch, Place p, int half) const {
    if (!added_) return;
    const Lie l = lie(batch, p);
    const float* from = added_ + l.at + half * (l.beside ? l.beside : isa_.nr / 2);
    for (int i = 0; i < p.rows; ++i) __builtin_prefetch(from + i * l.step);
  }

  After after(int64_t batch, const char* b, int64_t panel, int64_t p, int64_t count, int64_t k0, int64_t k,
              int64_t tiles) const {
    constexpr int64_t kInPanel = 8192;
    const int64_t row = isa_.nr * isa_.packed_bytes;
    if (!g_.packed_b && !plan_.whole_b) return {b, 0};
    if (tiles == 1) return {b + kInPanel, row};
    const bool more = p + 1 < count, final = k0 + k >= plan_.cut.padded;
    const int64_t then = more ? panel + p + 1 : final ? std::min(panel + count, plan_.panels - 1) : panel;
    return {panel_at(batch, then) + (more ? k0 : final ? 0 : k0 + k) * row, ceil_div(row, tiles)};
  }

  void multiply(int height, int64_t k, const char* a, const Side& s, float* sums, int64_t ld, bool add,
                const Prefetch& prefetch) const {
    if (s.rows_b) return isa_.micro[height].at(k, a, s.rows_b, g_.rows_b_ld, sums, ld, add);
    isa_.micro[height].part(s.cols, isa_.nr)(k, a, s.b, sums, ld, add, prefetch);
  }

  // Of B as a whole.
  const char* panel_at(int64_t batch, int64_t panel) const {
    const char* base = g_.packed_b ? static_cast<const char*>(g_.packed_b) : b_ + batch * plan_.panels * panel_bytes();
    return base + panel * panel_bytes();
  }

  // Rows that lie in one image of C follow each other there, columns are `transposed` apart.
  void store_transposed(const float* tile, int64_t row, int64_t col, int rows, int cols) const {
    const float* bias = g_.bias ? static_cast<const float*>(g_.bias) + col : nullptr;
    for (int done = 0; done < rows;) {
      const int64_t image = (row + done) / g_.transposed, at = (row + done) % g_.transposed;
      const int n = static_cast<int>(std::min<int64_t>(rows - done, g_.transposed - at));
      const int64_t out = (image * n_ + col) * g_.transposed + at;
      isa_.transpose(
          {tile + done * isa_.nr, isa_.nr, n, cols, nullptr, bias, static_cast<float*>(g_.c) + out, TSR_F32, g_.transposed},
          {g_.transposed, out, col, at, g_.steps, g_.num_steps});
      done += n;
    }
  }

  // Whether the result is the sums as they are.
  bool plain() const {
    return !g_.epilogue && !g_.bias && !g_.row_bias && !g_.transposed && g_.num_steps == 0 && g_.c_dtype == TSR_F32;
  }

  // How micro-kernels may finish whole tiles themselves, if they may.
  std::optional<DoneArgs> done() const {
    if (!isa_.micro[1].done || g_.epilogue || g_.transposed || g_.c_dtype != TSR_F32) return std::nullopt;
    static constexpr auto kNoBias = [] {
      std::array<float, std::extent_v<decltype(GemmIsa::micro)>> zeros{};
      for (float& z : zeros) z = -0.0f;  // z + -0 is z for every z
      return zeros;
    }();
    DoneArgs d{nullptr, n_, nullptr, nullptr, kNoBias.data(), nullptr, n_, -std::numeric_limits<float>::infinity(), false};
    const FinishStep *step = g_.steps, *end = step + g_.num_steps;
    if (g_.bias)
      d.bias = bias_;
    else if (!g_.row_bias && step != end && step->kind == FinishStep::kAdd && step->mode == FinishStep::kRow)
      d.bias = step++->data;
    if (step != end && step->kind == FinishStep::kAdd && step->mode == FinishStep::kDense) d.other = step++->data;
    if (step != end && step->kind == FinishStep::kRelu)
      d.least = 0, ++step;
    else if (step != end && step->kind == FinishStep::kHardswish)
      d.hardswish = true, ++step;
    return step == end ? std::optional(d) : std::nullopt;
  }

  const Gemm& g_;
  const GemmIsa& isa_;
  int64_t m_, n_, k_, batches_;
  Plan plan_;
  int64_t slots_;
  Shares shares_;
  char *a_, *b_, *scratch_;
  float* bias_;
  const bool plain_ = plain();
  const float* const added_ = added();
  std::optional<DoneArgs> done_;
};

}  // namespace

const GemmIsa* gemm_kernels(const Isa& isa, uint32_t a, uint32_t b) {
  const auto taken = [](uint32_t d) { return d == TSR_F32 || d == TSR_BF16 || d == TSR_F16; };
  if (!taken(a) || !taken(b)) return nullptr;
  if (a == TSR_BF16 && b == TSR_BF16) {
    if (isa.amx) return gemm_bf16_amx();
    if (isa.bf16_dot) return gemm_bf16_avx512();
  }
  return isa.level >= 2 ? gemm_f32_avx512() : isa.level == 1 ? gemm_f32_avx2() : gemm_f32_baseline();
}

int64_t gemm_workspace(const GemmIsa& isa, int64_t batch, int64_t m, int64_t n, int64_t k, GemmForm form, int slots) {
  if (batch * m * n == 0) return 0;
  return std::max(Plan(isa, batch, m, n, k, form, slots).total(slots), Plan(isa, batch, m, n, k, form, 1).total(1));
}

void gemm_run(const Gemm& g, void* workspace, int slots) { Run(g, workspace, slots_now(slots))(); }

int64_t packed_matrix_bytes(const GemmIsa& isa, int64_t n, int64_t k) {
  return round_up(n, isa.nr) * Cut(isa, k).padded * isa.packed_bytes + 64;
}

void pack_matrix(const GemmIsa& isa, const void* b, uint32_t dtype, const Nest<1>& n, const Nest<2>& k, void* out) {
  const int64_t columns = n.total(), depth = k.total(), padded = Cut(isa, depth).padded;
  const int64_t panel_bytes = padded * isa.nr * isa.packed_bytes, panels = ceil_div(columns, isa.nr);
  sdk::parallel(panels, std::max<int64_t>(1, kPackAtOnce / std::max<int64_t>(1, panel_bytes)), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      pack_panel(isa, b, dtype, n, columns, k, p, 0, depth, padded, static_cast<char*>(out) + p * panel_bytes);
  });
}

void pack_right_panel(const GemmIsa& isa, const void* b, uint32_t dtype, const Nest<1>& n, const Nest<2>& k, int64_t panel,
                      int64_t padded, void* out) {
  const int64_t columns = n.total();
  if (panel * isa.nr < columns)
    pack_panel(isa, b, dtype, n, columns, k, panel, 0, k.total(), padded, static_cast<char*>(out));
  else
    std::memset(out, 0, static_cast<size_t>(padded * isa.nr * isa.packed_bytes));
}

int64_t packed_left_bytes(const GemmIsa& isa, int64_t m, int64_t k) {
  return Plan(isa, 1, m, isa.nr, k, {false, true, false}, 1).left_bytes();
}

void pack_left(const GemmIsa& isa, const void* a, uint32_t dtype, const Nest<1>& m, const Nest<2>& k, void* out) {
  const Plan plan(isa, 1, m.total(), isa.nr, k.total(), {false, true, false}, 1);
  const int64_t tile_bytes = isa.mr * plan.cut.padded * isa.packed_bytes;
  sdk::parallel(plan.rows.tiles, std::max<int64_t>(1, kPackAtOnce / std::max<int64_t>(1, tile_bytes)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t t = begin; t < end; ++t)
                    pack_one_tile(isa, a, dtype, m, k, plan.cut, plan.rows, t,
                                  static_cast<char*>(out) + plan.rows.first_row(t) * plan.cut.padded * isa.packed_bytes);
                });
}

}  // namespace cpu
