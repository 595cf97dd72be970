// SPDX-License-Identifier: Apache-2.0
#include "winograd/winograd.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "shares.hpp"
#include "tessera/plugin.hpp"

namespace cpu {
namespace {

namespace sdk = tessera::sdk;

constexpr int64_t kLine = 64;
int points_of(int size) { return (size + 2) * (size + 2); }
int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// How the blocks of all images, line by line, are cut into tiles, the rows of one call of a micro-kernel: whole lines where
// they fill its registers, else tiles of nearly equal height, which begin and end anywhere. Tiles follow each other in groups
// whose transformed input values stay in the second-level cache.
struct Tiles {
  static constexpr int64_t kNear = 1 << 20;  // bytes
  static constexpr int64_t kLeastOwn = 2;    // tiles of a thread that reads all filters for them

  int64_t size, wide, lines;  // results of a block each way; blocks of a line; lines of all images
  int64_t image_lines;        // of one image
  int64_t together;           // lines of a tile; 0: tiles of any blocks
  int64_t tiles, base, extra;
  int64_t per_group, groups;

  Tiles(const GemmIsa& isa, const WinogradIsa& kernels, const ConvShape& s, int64_t slots)
      : size(kernels.size), wide(ceil_div(s.out[1], size)), image_lines(ceil_div(s.out[0], size)) {
    lines = s.images * image_lines;
    const int64_t most = std::min(isa.mr, kernels.most);
    together = most / wide;
    if (8 * together * wide < 7 * most) together = 0;
    if (together > 0 && lines % together > 0 && lines / together < 4 * slots)
      together = 0;  // the last tile's thread would have less to do
    tiles = together > 0 ? ceil_div(lines, together) : ceil_div(lines * wide, most);
    base = lines * wide / tiles, extra = lines * wide % tiles;
    const int64_t tile_bytes = points_of(kernels.size) * s.channels * height(0) * 4;
    // Filters are read once for each group.
    per_group = std::clamp<int64_t>(kNear / tile_bytes, std::min<int64_t>(4, tiles), tiles);
    groups = ceil_div(tiles, per_group);
    // Few groups are as many as there are threads: what each reads and writes stays in the caches of one core.
    if (tiles >= kLeastOwn * slots && groups < 3 * slots) groups = round_up(groups, slots);
    per_group = ceil_div(tiles, groups);
    groups = ceil_div(tiles, per_group);
  }
  // Blocks before tile t.
  int64_t before(int64_t t) const {
    return together > 0 ? std::min(t * together, lines) * wide : std::min(t, tiles) * base + std::min(t, extra);
  }
  int height(int64_t t) const { return static_cast<int>(before(t + 1) - before(t)); }
  // f(line, column, blocks, at) for those of blocks [begin, end) that lie in one line; `at` of them are before these.
  template <class F>
  void each_line(int64_t begin, int64_t end, F&& f) const {
    for (int64_t b = begin, n; b < end; b += n) {
      n = std::min(end - b, wide - b % wide);
      f(b / wide, b % wide, n, b - begin);
    }
  }
  int64_t first(int64_t group) const { return group * per_group; }
  int64_t last(int64_t group) const { return std::min(tiles, (group + 1) * per_group); }
  int64_t blocks(int64_t group) const { return before(last(group)) - before(first(group)); }
  int64_t most_blocks() const {  // of a group
    int64_t n = 0;
    for (int64_t g = 0; g < groups; ++g) n = std::max(n, blocks(g));
    return n;
  }
};

// Pieces of K as in other products.
int64_t piece_of(const GemmIsa& isa, int64_t channels) {
  const int64_t pieces = std::max<int64_t>(1, ceil_div(channels, isa.kc + isa.kc / 4));
  return round_up(ceil_div(channels, pieces), 8);
}

struct Plan {
  Tiles t;
  int64_t panels;
  // Threads take whole groups, or, where there are too few of them, panels of output channels of a group whose input values all
  // of them transformed before.
  bool by_group;
  int64_t sums_bytes, values_bytes;  // of a thread; of a thread or of all groups
  Plan(const GemmIsa& isa, const WinogradIsa& kernels, const ConvShape& s, int slots)
      : t(isa, kernels, s, slots), panels(ceil_div(s.outputs, isa.nr)) {
    constexpr int64_t kMostValues = 32 << 20;
    const int64_t blocks = t.most_blocks(), of_block = points_of(kernels.size) * s.channels * 4;
    by_group = t.groups >= 3 * slots || slots == 1 || t.lines * t.wide > kMostValues / of_block;
    sums_bytes = round_up(points_of(kernels.size) * blocks * isa.nr * 4, kLine);
    values_bytes = round_up((by_group ? blocks : t.lines * t.wide) * of_block + kLine, kLine);
  }
  int64_t total(int slots) const { return slots * sums_bytes + (by_group ? slots : 1) * values_bytes; }
};

class Run {
 public:
  Run(const WinogradConv& c, void* workspace, int slots)
      : c_(c),
        isa_(*c.isa),
        s_(*c.shape),
        plan_(isa_, *c.kernels, s_, slots),
        piece_(piece_of(isa_, s_.channels)),
        points_(points_of(c.kernels->size)) {
    sums_ = static_cast<char*>(workspace);
    values_ = sums_ + slots * plan_.sums_bytes;
    slots_ = std::min<int64_t>(slots, sdk::host().core->num_threads());
  }

  bool operator()() {
    const Tiles& t = plan_.t;
    if (plan_.by_group) {
      each(t.groups, [&](int64_t group, int64_t slot) {
        float* values = reinterpret_cast<float*>(values_ + slot * plan_.values_bytes);
        for (int64_t tile = t.first(group); tile < t.last(group); ++tile)
          transform(tile, 0, s_.channels, values + (t.before(tile) - t.before(t.first(group))) * points_ * s_.channels);
        for (int64_t p = 0; p < plan_.panels; ++p) panel(group, p, values, slot);
      });
    } else {
      float* values = reinterpret_cast<float*>(values_);
      const int64_t chunk = std::max<int64_t>(16, ceil_div(s_.channels, 4)), chunks = ceil_div(s_.channels, chunk);
      each(t.tiles * chunks, [&](int64_t unit, int64_t) {
        const int64_t tile = unit / chunks, from = unit % chunks * chunk;
        transform(tile, from, std::min(s_.channels, from + chunk), values + t.before(tile) * points_ * s_.channels);
      });
      each(t.groups * plan_.panels, [&](int64_t unit, int64_t slot) {
        const int64_t group = unit / plan_.panels;
        panel(group, unit % plan_.panels, values + t.before(t.first(group)) * points_ * s_.channels, slot);
      });
    }
    return finite_.load(std::memory_order_relaxed);
  }

 private:
  // f(unit, slot) for n units.
  template <class F>
  void each(int64_t n, F&& f) {
    const int64_t slots = std::min(slots_, n);
    Shares shares(n, slots);
    sdk::parallel(slots, 1, [&](int64_t begin, int64_t end) {
      for (int64_t slot = begin; slot < end; ++slot)
        for (int64_t unit, behind; shares.take(slot, &unit, &behind);) f(unit, slot);
    });
  }

  // Input values of one tile in channels [from, to): point by point, each [channel][block] as micro-kernels read rows.
  void transform(int64_t tile, int64_t from, int64_t to, float* values) const {
    const Tiles& t = plan_.t;
    const int64_t plane = s_.in[0] * s_.in[1], height = t.height(tile);
    t.each_line(t.before(tile), t.before(tile + 1), [&](int64_t line, int64_t column, int64_t blocks, int64_t at) {
      const int64_t image = line / t.image_lines, y = line % t.image_lines;
      c_.kernels->in({s_.x + (image * s_.channels + from) * plane, plane, s_.in[0], s_.in[1], t.size * y - s_.a.low[0],
                      t.size * column - s_.a.low[1], static_cast<int>(blocks), to - from, values + from * height + at,
                      s_.channels * height, height, at == 0});
    });
  }

  // All blocks of a group in the output channels of one panel.
  void panel(int64_t group, int64_t p, const float* values, int64_t slot) {
    const Tiles& t = plan_.t;
    float* sums = reinterpret_cast<float*>(sums_ + slot * plan_.sums_bytes);
    const int64_t begin = t.before(t.first(group)), point = t.blocks(group) * isa_.nr, tiles = t.last(group) - t.first(group);
    const int64_t filter_floats = s_.channels * isa_.nr;
    const float* filters = reinterpret_cast<const float*>(c_.packed) + p * points_ * filter_floats;
    for (int64_t q = 0; q < points_; ++q, filters += filter_floats)
      for (int64_t k0 = 0; k0 < s_.channels; k0 += piece_) {
        const int64_t k = std::min(piece_, s_.channels - k0);
        // Each tile fetches its share of the filters that are read next.
        const char* next = reinterpret_cast<const char*>(filters + (k0 + k) * isa_.nr);
        const int64_t step = ceil_div(isa_.nr * 4, tiles);
        for (int64_t i = t.first(group); i < t.last(group); ++i, next += step * k) {
          const int64_t blocks = t.before(i) - begin;
          const int height = t.height(i);
          isa_.micro[height].whole(k, values + (blocks * points_ + q * height) * s_.channels + k0 * height,
                                   filters + k0 * isa_.nr, sums + q * point + blocks * isa_.nr, isa_.nr, k0 > 0,
                                   Prefetch::only(next, step, sums));
        }
      }
    bool finite = true;
    t.each_line(begin, begin + t.blocks(group), [&](int64_t line, int64_t column, int64_t blocks, int64_t at) {
      finite = results(line, column, blocks, p, sums + at * isa_.nr, point) && finite;
    });
    if (!finite) finite_.store(false, std::memory_order_relaxed);
  }

  bool results(int64_t line, int64_t column, int64_t blocks, int64_t p, const float* sums, int64_t point) const {
    const int64_t channel = p * isa_.nr, positions = s_.positions(), image = line / plan_.t.image_lines, size = plan_.t.size,
                  y = size * (line % plan_.t.image_lines), x = size * column, position = y * s_.out[1] + x,
                  out = (image * s_.outputs + channel) * positions + position;
    return c_.kernels->out({sums,
                            point,
                            isa_.nr,
                            static_cast<int>(blocks),
                            static_cast<int>(std::min<int64_t>(isa_.nr, s_.outputs - channel)),
                            static_cast<int>(std::min<int64_t>(size, s_.out[0] - y)),
                            static_cast<int>(std::min(size * blocks, s_.out[1] - x)),
                            c_.bias ? c_.bias + channel : nullptr,
                            c_.y + out,
                            positions,
                            s_.out[1],
                            {positions, out, channel, position, c_.steps, c_.num_steps}});
  }

  const WinogradConv& c_;
  const GemmIsa& isa_;
  const ConvShape& s_;
  Plan plan_;
  int64_t piece_, points_, slots_;
  char *sums_, *values_;
  std::atomic<bool> finite_{true};
};

}  // namespace

int winograd_size(const GemmIsa& isa, int most, int64_t images, int64_t channels, int64_t outputs, const int64_t (&out)[2],
                  double direct, bool packed) {
  if (channels < 16 || outputs < isa.nr) return 0;
  // In products of a row of a tile and a panel, as `direct` is: what transforms take for each block and channel (measured on
  // AVX-512); and in the time of one of them 8 bytes of filters come from memory.
  constexpr double kTransform[] = {2, 8}, kFilterBytes = 8;
  constexpr double kFilter = 3, kWritten = 4;  // of a filter that is transformed by each run: itself, and bytes that it writes
  int best = 0;
  double least = 0.9 * direct;
  for (const int size : {2, 4}) {
    if (size > most) break;
    const double blocks = static_cast<double>(images * ceil_div(out[0], size) * ceil_div(out[1], size));
    const double in = static_cast<double>(channels), panels = static_cast<double>(ceil_div(outputs, isa.nr)),
                 all = static_cast<double>(outputs), points = points_of(size);
    const double cycles = std::max(points * blocks * in * panels, points * in * all * 4 / kFilterBytes) +
                          kTransform[size / 4] * blocks * (in + all) +
                          (packed ? 0 : in * all * (kFilter + points * 4 / kWritten));
    if (cycles < least) best = size, least = cycles;
  }
  return best;
}

int64_t winograd_packed_bytes(const GemmIsa& isa, int size, int64_t outputs, int64_t channels) {
  return points_of(size) * round_up(outputs, isa.nr) * channels * 4 + kLine;
}

namespace {

// G g of one column or row of a filter: see winograd/tables.hpp.
void transform_filter(int size, const double (&g)[3], double (&u)[6]) {
  if (size == 2) {
    u[0] = g[0], u[1] = (g[0] + g[1] + g[2]) / 2, u[2] = (g[0] - g[1] + g[2]) / 2, u[3] = g[2];
    return;
  }
  const double p = std::sqrt(0.5), q = std::sqrt(2.0);
  const double even_p = -(2 * g[0] + g[2]) / 3, odd_p = -2 * p * g[1] / 3, even_q = (g[0] + 2 * g[2]) / 6, odd_q = q * g[1] / 6;
  u[0] = g[0], u[1] = even_p + odd_p, u[2] = even_p - odd_p, u[3] = even_q + odd_q, u[4] = even_q - odd_q, u[5] = g[2];
}

}  // namespace

void winograd_pack(const GemmIsa& isa, int size, const float* filters, int64_t outputs, int64_t channels, char* to) {
  const int64_t panels = ceil_div(outputs, isa.nr), nr = isa.nr;
  const int side = size + 2;
  sdk::parallel(panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      float* u = reinterpret_cast<float*>(to) + p * side * side * channels * nr;
      for (int64_t c = 0; c < channels; ++c)
        for (int64_t j = 0; j < nr; ++j) {
          const int64_t o = p * nr + j;
          double columns[3][6] = {};
          if (o < outputs) {
            const float* g = filters + (o * channels + c) * 9;
            for (int x = 0; x < 3; ++x) transform_filter(size, {g[x], g[3 + x], g[6 + x]}, columns[x]);
          }
          for (int y = 0; y < side; ++y) {
            double all[6];
            transform_filter(size, {columns[0][y], columns[1][y], columns[2][y]}, all);
            for (int x = 0; x < side; ++x) u[((side * y + x) * channels + c) * nr + j] = static_cast<float>(all[x]);
          }
        }
    }
  });
  std::fill_n(to + winograd_packed_bytes(isa, size, outputs, channels) - kLine, kLine, char{0});
}

void winograd_transform(const GemmIsa& isa, const WinogradIsa& kernels, const float* filters, int64_t outputs, int64_t channels,
                        char* to) {
  constexpr int64_t kChunk = 64;  // channels
  const int64_t nr = isa.nr, panels = ceil_div(outputs, nr), chunks = ceil_div(channels, kChunk);
  sdk::parallel(panels * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t p = unit / chunks, from = unit % chunks * kChunk;
      kernels.filters({filters + p * nr * channels * 9, static_cast<int>(std::min(nr, outputs - p * nr)), channels, from,
                       std::min(channels, from + kChunk),
                       reinterpret_cast<float*>(to) + p * points_of(kernels.size) * channels * nr, static_cast<int>(nr)});
    }
  });
  std::fill_n(to + winograd_packed_bytes(isa, kernels.size, outputs, channels) - kLine, kLine, char{0});
}

int64_t winograd_workspace(const GemmIsa& isa, const WinogradIsa& kernels, const ConvShape& s, int slots) {
  if (s.images * s.positions() == 0) return 0;
  return std::max(Plan(isa, kernels, s, slots).total(slots), Plan(isa, kernels, s, 1).total(1));
}

bool winograd_run(const WinogradConv& c, void* workspace, int slots) {
  return c.shape->images * c.shape->positions() == 0 || Run(c, workspace, slots_now(slots))();
}

}  // namespace cpu
