// SPDX-License-Identifier: Apache-2.0
#include "strassen/strassen.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "shares.hpp"
#include "tessera/dtypes.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

namespace sdk = tessera::sdk;

namespace {

constexpr int64_t kLine = 64;
int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Powers of two as bits of floats: a magnitude's exponent scales it to between 1 and 2.
constexpr uint32_t kLeastExponent = 127 - 40, kMostExponent = 127 + 40;
float power(uint32_t exponent) { return __builtin_bit_cast(float, exponent << 23); }

enum class Suits { kYes, kZero, kNo };
Suits suits(const StrassenLook& l, int64_t k) {
  constexpr int64_t kFew = 8;
  if (l.nonzero == 0) return Suits::kZero;
  const uint32_t e = l.largest >> 23;
  return e < kLeastExponent || e > kMostExponent || l.nonzero * kFew <= k ? Suits::kNo : Suits::kYes;
}

// How K is cut: pieces whose halves are partners.
struct Depth {
  int64_t k, pieces, half;
  Depth(const GemmIsa& isa, int64_t depth) : k(depth) {
    pieces = std::max<int64_t>(1, ceil_div(ceil_div(k, 2), isa.kc + isa.kc / 4));
    half = round_up(ceil_div(k, 2 * pieces), 8);
  }
  int64_t begin(int64_t piece) const { return piece * 2 * half; }
  // Of `count` elements from `at` on, those that exist.
  int64_t have(int64_t at, int64_t count) const { return std::clamp<int64_t>(k - at, 0, count); }
};

// Where things lie in packed weights: a line that says what they are, a factor for each column, and for each pair of panels and
// piece of K seven sums.
struct Form {
  Depth depth;
  int64_t pairs, sum, piece, pair, factors_bytes;  // floats but for the last
  Form(const GemmIsa& isa, int64_t n, int64_t k)
      : depth(isa, k),
        pairs(ceil_div(n, 2 * isa.nr)),
        sum(depth.half * isa.nr),
        piece(kStrassenProducts * sum),
        pair(depth.pieces * piece),
        factors_bytes(round_up(pairs * 2 * isa.nr * 4, kLine)) {}
  int64_t bytes() const { return kLine + factors_bytes + pairs * pair * 4 + kLine; }
  static const float* factors(const char* packed) { return reinterpret_cast<const float*>(packed + kLine); }
  const float* sums(const char* packed) const { return reinterpret_cast<const float*>(packed + kLine + factors_bytes); }
};
constexpr uint64_t kSums = 1, kPlain = 2;

// How M is cut: blocks of nearly equal height, whose halves are partners, in tiles of nearly equal height.
struct Rows {
  int64_t m, blocks, half, tiles;  // half: of the highest block
  Rows(const GemmIsa& isa, int64_t rows)
      : m(rows), blocks(blocks_of(rows)), half(ceil_div(ceil_div(m, blocks), 2)), tiles(ceil_div(half, isa.mr)) {}
  // So high that sums of weights are worth being read for them, so low that the sums of A of a block stay in the second-level
  // cache, and that few rows are enough for a few threads. It depends on M alone: so do the results.
  static int64_t blocks_of(int64_t rows) {
    constexpr int64_t kLow = 64, kHigh = 128;
    return rows < 2 * kHigh ? std::clamp<int64_t>(rows / kLow, 1, 2) : (rows + kHigh / 2) / kHigh;
  }
  int64_t first(int64_t block) const { return block * (m / blocks) + std::min(block, m % blocks); }
  int64_t count(int64_t block) const { return m / blocks + (block < m % blocks); }
  // Of a half: the same tiles in all blocks.
  int64_t tile_first(int64_t tile) const { return tile * (half / tiles) + std::min(tile, half % tiles); }
  int height(int64_t tile) const { return static_cast<int>(half / tiles + (tile < half % tiles)); }
  // The row of C that is row `i` of the upper or lower half of a block, if there is one.
  int64_t row(int64_t block, int64_t lower, int64_t i) const { return first(block) + lower * half + i; }
  int64_t exist(int64_t block, int64_t lower, int64_t i, int64_t rows) const {
    return std::clamp<int64_t>(count(block) - lower * half - i, 0, rows);
  }
};

struct Plan {
  Form form;
  Rows rows;
  // Each thread prepares the blocks of rows that it multiplies, in memory of its own: lines that another core reads or wrote
  // take several times as long to write to. With fewer blocks than threads all of them prepare all of A first, and share its
  // columns.
  bool own;
  int64_t left_bytes, scales_bytes, place_bytes, bias_bytes, sums_bytes, slot_bytes;
  Plan(const GemmIsa& isa, int64_t m, int64_t n, int64_t k, int slots)
      : form(isa, n, k), rows(isa, m), own(slots <= rows.blocks) {
    left_bytes = form.depth.pieces * left_of_piece() * 4;
    scales_bytes = round_up(2 * rows.half * 4, kLine);
    place_bytes = left_bytes + 2 * scales_bytes + kLine;
    bias_bytes = round_up(form.pairs * 2 * isa.nr * 4, kLine);
    sums_bytes = round_up(4 * rows.half * isa.nr * 4, kLine);
    slot_bytes = sums_bytes + 4 * form.sum * 4;
  }
  // Of A's sums: floats of a product, and of a piece of K.
  int64_t left_of_product() const { return rows.half * kRowPitch; }
  int64_t left_of_piece() const { return kStrassenProducts * left_of_product(); }
  int64_t total(int slots) const { return bias_bytes + (own ? slots : rows.blocks) * place_bytes + slots * slot_bytes; }
};

// In the order of strassen/tables.hpp: what begins a sum does so with the first piece of K only.
struct Target {
  int quarter[2];
  Sums::Mode mode[2];
};
constexpr Target kTargets[kStrassenProducts] = {
    {{0, 3}, {Sums::kBegin, Sums::kBegin}},    {{0, 0}, {Sums::kAdd, Sums::kNone}}, {{0, 2}, {Sums::kAdd, Sums::kBegin}},
    {{0, 1}, {Sums::kSubtract, Sums::kBegin}}, {{1, 3}, {Sums::kAdd, Sums::kAdd}},  {{2, 3}, {Sums::kAdd, Sums::kSubtract}},
    {{3, 0}, {Sums::kAdd, Sums::kNone}}};

class Run {
 public:
  Run(const Gemm& g, void* workspace, int slots)
      : g_(g),
        isa_(*g.isa),
        kernels_(strassen_kernels(isa_)),
        n_(g.n.total()),
        k_(g.k.total()),
        plan_(isa_, g.m.total(), n_, k_, slots),
        slots_(std::min<int64_t>(slots, sdk::host().core->num_threads())) {
    char* w = static_cast<char*>(workspace);
    bias_ = reinterpret_cast<float*>(w), w += plan_.bias_bytes;
    places_ = w, w += (plan_.own ? slots : plan_.rows.blocks) * plan_.place_bytes;
    scratch_ = w;
    const char* packed = static_cast<const char*>(g.packed_b);
    sums_ = plan_.form.sums(packed);
    column_factors_ = Form::factors(packed);
    for (int i = 0; i < g.num_steps; ++i)
      if (g.steps[i].mode == FinishStep::kDense && g.steps[i].data) added_ = g.steps[i].data;
    // A row that is added first is a bias: what then follows is mostly a chain that has a store of its own. One before gelu has
    // one already.
    const auto gelu = [](const FinishStep& s) { return s.kind == FinishStep::kGelu || s.kind == FinishStep::kGeluTanh; };
    if (!g.bias && g.num_steps > 0 && g.steps->kind == FinishStep::kAdd && g.steps->mode == FinishStep::kRow &&
        !(g.num_steps == 2 && gelu(g.steps[1])))
      row_ = g.steps->data;
  }

  void operator()() {
    const Rows& rows = plan_.rows;
    if (g_.bias)
      for (int64_t j = 0; j < n_; ++j)
        bias_[j] = tessera::load_as<float>(static_cast<tsr_dtype>(g_.bias_dtype), g_.bias, j * g_.bias_stride);
    if (!plan_.own) prepare_all();
    const int64_t pairs = plan_.form.pairs;
    Shares shares(rows.blocks * pairs, slots_);
    // Preparing a block takes about as long as multiplying it by one pair of panels: who is done helps others where that gains
    // something.
    const int64_t least = plan_.own ? 4 : 1;
    sdk::parallel(slots_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot) {
        Block mine = place(slot);
        for (int64_t unit, behind; shares.take(slot, 1, 1, &unit, &behind, least);) {
          const int64_t block = unit / pairs;
          if (!plan_.own) mine = place(block);
          if (plan_.own && mine.index != block) prepare(mine, block);
          mine.index = block;
          pair(mine, unit % pairs, scratch_ + slot * plan_.slot_bytes);
        }
      }
    });
  }

 private:
  template <class F>
  void each(int64_t n, F&& f) const {
    sdk::parallel(n, std::max<int64_t>(1, ceil_div(n, slots_)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) f(i);
    });
  }

  // A block of rows of A, ready to be multiplied.
  struct Block {
    int64_t index;
    float *left, *scales, *factors;  // scales and factors: [2][half]
    uint32_t* plain;
  };
  Block place(int64_t i) const {
    char* at = places_ + i * plan_.place_bytes;
    Block b{-1, reinterpret_cast<float*>(at), nullptr, nullptr, nullptr};
    at += plan_.left_bytes;
    b.scales = reinterpret_cast<float*>(at), at += plan_.scales_bytes;
    b.factors = reinterpret_cast<float*>(at), at += plan_.scales_bytes;
    b.plain = reinterpret_cast<uint32_t*>(at);
    return b;
  }

  void prepare(Block& b, int64_t block) const {
    const Rows& rows = plan_.rows;
    const Depth& depth = plan_.form.depth;
    b.index = block;
    *b.plain = 0;
    for (int64_t t = 0; t < 2 * rows.tiles; ++t) look(b, t % 2, t / 2);
    for (int64_t piece = 0; piece < depth.pieces; ++piece)
      for (int64_t tile = 0; tile < rows.tiles; ++tile) pack(b, tile, piece, 0, depth.half);
  }

  void prepare_all() const {
    const Rows& rows = plan_.rows;
    const Depth& depth = plan_.form.depth;
    const auto of = [this](int64_t block) {
      Block b = place(block);
      b.index = block;
      return b;
    };
    for (int64_t block = 0; block < rows.blocks; ++block) *of(block).plain = 0;
    each(rows.blocks * rows.tiles * 2, [&](int64_t u) { look(of(u / 2 / rows.tiles), u % 2, u / 2 % rows.tiles); });
    // Some slices of K for each tile, for all threads to have some.
    constexpr int64_t kSlice = 192;
    const int64_t slices = ceil_div(depth.half, kSlice), of_tile = depth.pieces * slices;
    each(rows.blocks * rows.tiles * of_tile, [&](int64_t u) {
      const int64_t slice = u % slices * kSlice;
      pack(of(u / of_tile / rows.tiles), u / of_tile % rows.tiles, u / slices % depth.pieces, slice,
           std::min(kSlice, depth.half - slice));
    });
  }

  const float* row_of_a(int64_t row) const {
    int64_t at[1];
    g_.m.at(row, at);
    return static_cast<const float*>(g_.a) + at[0];
  }

  // Rows of a tile of one half of a block: their scales, and whether they may be mixed.
  void look(const Block& b, int64_t lower, int64_t tile) const {
    const Rows& rows = plan_.rows;
    const int64_t i0 = rows.tile_first(tile), have = rows.exist(b.index, lower, i0, rows.height(tile));
    for (int64_t i = i0; i < i0 + rows.height(tile); ++i) {
      const int64_t at = lower * rows.half + i;
      b.scales[at] = b.factors[at] = 0;
      if (i >= i0 + have) continue;
      StrassenLook l;
      kernels_.look(row_of_a(rows.row(b.index, lower, i)), k_, &l);
      const Suits s = suits(l, k_);
      const uint32_t e = l.largest >> 23;
      if (s == Suits::kNo) std::atomic_ref(*b.plain).store(1, std::memory_order_relaxed);
      if (s == Suits::kYes) b.scales[at] = power(254 - e), b.factors[at] = power(e);
    }
  }

  // `count` elements of both halves of a piece of K, from `slice` on, of a tile of both halves of the rows.
  void pack(const Block& b, int64_t tile, int64_t piece, int64_t slice, int64_t count) const {
    const Rows& rows = plan_.rows;
    const Depth& depth = plan_.form.depth;
    const bool plain = *b.plain != 0;
    const int64_t first = depth.begin(piece) + slice, second = first + depth.half;
    for (int64_t i = rows.tile_first(tile); i < rows.tile_first(tile) + rows.height(tile); ++i) {
      const float* row[2];
      float scale[2];
      for (int64_t lower = 0; lower < 2; ++lower) {
        const bool exists = rows.exist(b.index, lower, i, 1) > 0;
        row[lower] = row_of_a(exists ? rows.row(b.index, lower, i) : rows.first(b.index)) + first;
        scale[lower] = plain ? (exists ? 1.0f : 0.0f) : b.scales[lower * rows.half + i];
      }
      kernels_.left({row[0], row[1], scale[0], scale[1], depth.half, depth.have(first, count), depth.have(second, count), count,
                     b.left + piece * plan_.left_of_piece() + i * kRowPitch + slice, plan_.left_of_product(), plain});
    }
  }

  // All of K for a block of rows and a pair of panels.
  void pair(const Block& b, int64_t p, char* scratch) const {
    const Rows& rows = plan_.rows;
    const Form& form = plan_.form;
    float* const sums = reinterpret_cast<float*>(scratch);
    for (int64_t piece = 0; piece < form.depth.pieces; ++piece) {
      const float* right = sums_ + p * form.pair + piece * form.piece;
      const float* left = b.left + piece * plan_.left_of_piece();
      if (*b.plain)
        plain_products(p, piece, left, right, sums, reinterpret_cast<float*>(scratch + plan_.sums_bytes));
      else
        products(b, p, piece, left, right, sums);
    }
    if (*b.plain)
      for (int64_t quarter = 0; quarter < 4; ++quarter) results(b, p, quarter, sums + quarter * rows.half * isa_.nr);
  }

  // A quarter of the results is finished as soon as the last product has been added to it: the last four products of the last
  // piece of K finish one each, and their tiles ask for its lines of C, and of what is added to it, before.
  static constexpr int kFirstToFinish = 3;
  void products(const Block& b, int64_t p, int64_t piece, const float* left, const float* right, float* sums) const {
    const Rows& rows = plan_.rows;
    const int64_t quarter = rows.half * isa_.nr;
    for (int q = 0; q < kStrassenProducts; ++q) {
      Target t = kTargets[q];
      for (Sums::Mode& mode : t.mode)
        if (piece > 0 && mode == Sums::kBegin) mode = Sums::kAdd;
      const int64_t finished = piece + 1 == plan_.form.depth.pieces ? q - kFirstToFinish : -1;
      product(left + q * plan_.left_of_product(), right + q * plan_.form.sum, sums, t, [&](Prefetch& prefetch, int64_t tile) {
        if (finished < 0) return;
        prefetch.lines[0] = results_at(b.index, p, finished, tile, static_cast<const float*>(g_.c), prefetch.lines[0]);
        if (added_) prefetch.lines[1] = results_at(b.index, p, finished, tile, added_, prefetch.lines[1]);
      });
      if (finished >= 0) results(b, p, finished, sums + finished * quarter);
    }
  }

  // The lines of a tile of the results, or of what lies like them; `none` if there are no such results.
  Prefetch::Lines results_at(int64_t block, int64_t p, int64_t quarter, int64_t tile, const float* c,
                             Prefetch::Lines none) const {
    const int64_t i = plan_.rows.tile_first(tile), lower = quarter / 2, col = (2 * p + quarter % 2) * isa_.nr;
    if (plan_.rows.exist(block, lower, i, 1) == 0 || col >= n_) return none;
    return {reinterpret_cast<const char*>(c + plan_.rows.row(block, lower, i) * n_ + col), isa_.nr * 4 > kLine ? kLine : 0,
            n_ * 4};
  }

  // One product of a half of the rows and a panel, added to quarters of the results. ask(Prefetch&, tile).
  template <class Ask>
  void product(const float* a, const float* b, float* sums, const Target& t, Ask&& ask) const {
    const Rows& rows = plan_.rows;
    const int64_t k = plan_.form.depth.half, quarter = rows.half * isa_.nr;
    // Each tile fetches its share of the weights that are read next, which lie behind these.
    const char* next = reinterpret_cast<const char*>(b + plan_.form.sum);
    const int64_t step = ceil_div(isa_.nr * 4, rows.tiles);
    for (int64_t tile = 0; tile < rows.tiles; ++tile, next += step * k) {
      const int64_t i = rows.tile_first(tile);
      const int height = rows.height(tile);
      float* const at = sums + i * isa_.nr;
      Prefetch prefetch = Prefetch::only(next, step, at);
      ask(prefetch, tile);
      isa_.micro[height].add_to(k, a + i * kRowPitch, b,
                                {{at + t.quarter[0] * quarter, at + t.quarter[1] * quarter}, {t.mode[0], t.mode[1]}}, prefetch);
    }
  }

  // The eight products of quarters as they are.
  void plain_products(int64_t p, int64_t piece, const float* left, const float* right, float* sums, float* quarters) const {
    const Form& form = plan_.form;
    const float* columns = column_factors_ + p * 2 * isa_.nr;
    kernels_.back({right, columns, columns + isa_.nr, form.depth.half, quarters});
    for (int row = 0; row < 2; ++row)
      for (int column = 0; column < 2; ++column)
        for (int k = 0; k < 2; ++k)
          product(left + (2 * row + k) * plan_.left_of_product(), quarters + (2 * k + column) * form.sum, sums,
                  {{2 * row + column, 0}, {piece + k > 0 ? Sums::kAdd : Sums::kBegin, Sums::kNone}}, [](Prefetch&, int64_t) {});
  }

  void results(const Block& b, int64_t p, int64_t quarter, const float* sums) const {
    const Rows& rows = plan_.rows;
    const int64_t lower = quarter / 2, col = (2 * p + quarter % 2) * isa_.nr;
    const int cols = static_cast<int>(std::min<int64_t>(isa_.nr, n_ - col));
    if (cols <= 0) return;
    for (int64_t tile = 0; tile < rows.tiles; ++tile) {
      const int64_t i = rows.tile_first(tile), row = rows.row(b.index, lower, i), out = row * n_ + col;
      const int have = static_cast<int>(rows.exist(b.index, lower, i, rows.height(tile)));
      if (have == 0) return;
      StoreArgs s{sums + i * isa_.nr,
                  isa_.nr,
                  have,
                  cols,
                  g_.bias ? bias_ + col
                  : row_  ? row_ + col
                          : nullptr,
                  nullptr,
                  static_cast<float*>(g_.c) + out,
                  TSR_F32,
                  n_};
      if (!*b.plain) s.row_factors = b.factors + lower * rows.half + i, s.column_factors = column_factors_ + col;
      isa_.store(s, {n_, out, row, col, g_.steps + (row_ != nullptr), g_.num_steps - (row_ != nullptr)});
    }
  }

  const Gemm& g_;
  const GemmIsa& isa_;
  const StrassenIsa& kernels_;
  int64_t n_, k_;
  Plan plan_;
  int64_t slots_;
  char *places_, *scratch_;
  float* bias_;
  const float *sums_, *column_factors_, *added_ = nullptr, *row_ = nullptr;
};

// One pair of panels of packed weights; false: they do not suit. `space`: 4 * depth.pieces * form.sum floats.
bool pack_pair(const GemmIsa& isa, const StrassenIsa& kernels, const float* b, const Nest<1>& n, const Nest<2>& k,
               const Form& form, int64_t p, float* factors, float* sums, float* space) {
  const Depth& depth = form.depth;
  const int64_t columns = n.total(), panel = depth.pieces * 2 * form.sum;
  for (int side = 0; side < 2; ++side) {
    float* const to = space + side * panel;
    pack_right_panel(isa, b, TSR_F32, n, k, 2 * p + side, depth.pieces * 2 * depth.half, to);
    StrassenLook looks[64];
    kernels.look_down(to, depth.k, looks);
    float scales[64];
    for (int j = 0; j < isa.nr; ++j) {
      const Suits s = suits(looks[j], depth.k);
      const uint32_t e = looks[j].largest >> 23;
      if (s == Suits::kNo && (2 * p + side) * isa.nr + j < columns) return false;
      const bool yes = s == Suits::kYes;
      scales[j] = yes ? power(254 - e) : 0.0f;
      factors[(2 * p + side) * isa.nr + j] = yes ? power(e) : 0.0f;
    }
    kernels.scale_columns(to, depth.pieces * 2 * depth.half, scales);
  }
  for (int64_t piece = 0; piece < depth.pieces; ++piece) {
    const float *first = space + piece * 2 * form.sum, *second = first + panel;
    kernels.right({first, second, first + form.sum, second + form.sum, depth.half, sums + p * form.pair + piece * form.piece});
  }
  return true;
}

}  // namespace

const StrassenIsa& strassen_kernels(const GemmIsa& isa) {
  return &isa == gemm_f32_avx512() ? strassen_avx512() : &isa == gemm_f32_avx2() ? strassen_avx2() : strassen_baseline();
}

bool strassen_pays(const GemmIsa& isa, int64_t m, int64_t n, int64_t k) {
  // Below, making the sums of A and bringing products to where they belong takes what is saved (measured with AVX2 and AVX-512,
  // one and two threads).
  constexpr int64_t kLeastRows = 64, kLeastColumns = 256, kLeastDepth = 256;
  return !isa.bf16 && m >= kLeastRows && n >= kLeastColumns && k >= kLeastDepth;
}

int64_t strassen_packed_bytes(const GemmIsa& isa, int64_t n, int64_t k) {
  return std::max(Form(isa, n, k).bytes(), kLine + packed_matrix_bytes(isa, n, k));
}

void strassen_pack(const GemmIsa& isa, const float* b, const Nest<1>& n, const Nest<2>& k, char* to) {
  const StrassenIsa& kernels = strassen_kernels(isa);
  const Form form(isa, n.total(), k.total());
  float* const factors = reinterpret_cast<float*>(to + kLine);
  float* const sums = reinterpret_cast<float*>(to + kLine + form.factors_bytes);
  std::atomic<bool> suit{true};
  sdk::parallel(form.pairs, std::max<int64_t>(1, (int64_t{1} << 18) / form.pair), [&](int64_t begin, int64_t end) {
    std::vector<float> space(static_cast<size_t>(4 * form.depth.pieces * form.sum + 64));
    for (int64_t p = begin; p < end && suit.load(std::memory_order_relaxed); ++p)
      if (!pack_pair(isa, kernels, b, n, k, form, p, factors, sums, space.data())) suit.store(false, std::memory_order_relaxed);
  });
  std::memset(to, 0, kLine);
  const uint64_t what = suit ? kSums : kPlain;
  std::memcpy(to, &what, sizeof what);
  if (!suit) pack_matrix(isa, b, TSR_F32, n, k, to + kLine);
}

const char* strassen_plain_form(const char* packed) {
  uint64_t what;
  std::memcpy(&what, packed, sizeof what);
  return what == kPlain ? packed + kLine : nullptr;
}

int64_t strassen_workspace(const GemmIsa& isa, int64_t m, int64_t n, int64_t k, int slots) {
  if (m * n == 0) return 0;
  return std::max(Plan(isa, m, n, k, slots).total(slots), Plan(isa, m, n, k, 1).total(1));
}

void strassen_run(const Gemm& g, void* workspace, int slots) {
  if (g.m.total() * g.n.total() > 0) Run(g, workspace, slots_now(slots))();
}

}  // namespace cpu
