// SPDX-License-Identifier: Apache-2.0
// Winograd's transforms of input values and of results, compiled once per instruction set. Input values have blocks along the lanes: two vectors of a row are
// combined with those of other rows first, and then picked apart into even and odd columns. Sums have output channels along the lanes, as products leave
// them, and are transposed on their way to memory.
#include "winograd/tables.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "gemm/isa/finish.hpp"
#include "gemm/isa/lanes.hpp"
#include "gemm/isa/turn.hpp"

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

// Lanes [low, high) of a vector in memory, zeros for the others; nothing else is read.
struct Window {
#if defined(__AVX512F__)
  __mmask16 mask;
  Window(int64_t low, int64_t high) {
    const auto bits = [](int64_t n) { return n <= 0 ? 0u : n >= kLanes ? 0xffffu : (1u << n) - 1; };
    mask = static_cast<__mmask16>(bits(high) & ~bits(low));
  }
  [[gnu::always_inline]] Vec get(const float* p) const { return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(mask, p)); }
#elif defined(__AVX2__)
  __m256i mask;
  Window(int64_t low, int64_t high) {
    const auto bound = [](int64_t n) { return _mm256_set1_epi32(static_cast<int>(n < 0 ? 0 : n > kLanes ? kLanes : n)); };
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    mask = _mm256_andnot_si256(_mm256_cmpgt_epi32(bound(low), lanes), _mm256_cmpgt_epi32(bound(high), lanes));
  }
  [[gnu::always_inline]] Vec get(const float* p) const { return reinterpret_cast<Vec>(_mm256_maskload_ps(p, mask)); }
#else
  int low, high;
  Window(int64_t l, int64_t h) : low(static_cast<int>(l < 0 ? 0 : l)), high(static_cast<int>(h > kLanes ? kLanes : h)) {}
  Vec get(const float* p) const {
    Vec v{};
    for (int i = low; i < high; ++i) v[i] = p[i];
    return v;
  }
#endif
};

// Lane i + 1 in lane i.
template <int... I>
[[gnu::always_inline]] inline Vec turned_by_one(Vec v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, ((I + 1) % kLanes)...);
}
[[gnu::always_inline]] inline Vec turned_by_one(Vec v) { return turned_by_one(v, std::make_integer_sequence<int, kLanes>()); }

struct Sides {
  Window left, right;  // of the two vectors of a row
  bool seen[4];        // rows
};

// Channels [begin, end). kWhole: whole vectors are stored; what one writes behind its blocks is written again with a later channel.
template <bool kWhole>
void in_channels(const WinogradIn& w, const Sides& s, int64_t begin, int64_t end) {
  const float* x = w.x + w.row * w.width + w.column + begin * w.plane;
  float* v = w.v + begin * w.step;
  const int stored = kWhole ? kLanes : w.blocks;
  for (int64_t c = begin; c < end; ++c, x += w.plane, v += w.step) {
    Vec a[4], b[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      a[r] = b[r] = Vec{};
      if (!s.seen[r]) continue;
      const float* from = x + r * w.width;
      __builtin_prefetch(from + 4 * w.plane);
      a[r] = s.left.get(from);
      b[r] = s.right.get(from + kLanes);
    }
    const Vec ra[4] = {a[0] - a[2], a[1] + a[2], a[2] - a[1], a[1] - a[3]};
    const Vec rb[4] = {b[0] - b[2], b[1] + b[2], b[2] - b[1], b[1] - b[3]};
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const Vec d0 = every_second<0>(ra[r], rb[r]), d1 = every_second<1>(ra[r], rb[r]), d2 = turned_by_one(d0),
                d3 = turned_by_one(d1);
      float* to = v + 4 * r * w.point;
      store_some(to, d0 - d2, stored);
      store_some(to + w.point, d1 + d2, stored);
      store_some(to + 2 * w.point, d2 - d1, stored);
      store_some(to + 3 * w.point, d1 - d3, stored);
    }
  }
}

void in(const WinogradIn& w) {
  const int64_t low = -w.column, high = w.width - w.column;
  Sides s{Window(low, high), Window(low - kLanes, high - kLanes), {}};
  for (int r = 0; r < 4; ++r) s.seen[r] = w.row + r >= 0 && w.row + r < w.height;
  const int64_t last = w.first ? (kLanes - 1) / w.step : w.channels,
                whole = kLanes < 16 && w.channels > last ? w.channels - last : 0;  // AVX-512 stores some lanes as fast
  in_channels<true>(w, s, 0, whole);
  in_channels<false>(w, s, whole, w.channels);
}

// Results of kLanes channels from `first` on, of two columns for each of `blocks` blocks (at most kLanes / 2).
struct Pair {
  Vec y[2][kLanes];  // [row][column], lanes are channels
};

[[gnu::always_inline]] inline Vec gathered(const WinogradOut& w, int first, int block, int blocks, Pair& p) {
  Vec zero{};
  for (int b = 0; b < blocks; ++b) {
    const float* m = w.m + (block + b) * w.step + first;
    Vec s[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const Vec m0 = load(m + (4 * r) * w.point), m1 = load(m + (4 * r + 1) * w.point), m2 = load(m + (4 * r + 2) * w.point),
                m3 = load(m + (4 * r + 3) * w.point);
      s[r][0] = (m0 + m1) + m2;
      s[r][1] = (m1 - m2) - m3;
    }
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      p.y[0][2 * b + c] = (s[0][c] + s[1][c]) + s[2][c];
      p.y[1][2 * b + c] = (s[1][c] - s[2][c]) - s[3][c];
      // NaN from then on if one of them is not finite.
      zero += p.y[0][2 * b + c] * Vec{} + p.y[1][2 * b + c] * Vec{};
    }
  }
  return zero;
}

template <Chain C>
bool out_with(const WinogradOut& w) {
  Vec zero{};
  for (int first = 0; first < w.channels; first += kLanes) {
    const int channels = lanes_of(w.channels - first);
    for (int block = 0; block < w.blocks; block += kLanes / 2) {
      const int blocks = w.blocks - block < kLanes / 2 ? w.blocks - block : kLanes / 2;
      const int columns = lanes_of(w.columns - 2 * block);
      Pair p;
      zero += gathered(w, first, block, blocks, p);
      for (int b = 2 * blocks; b < kLanes; ++b) p.y[0][b] = p.y[1][b] = Vec{};
      for (int r = 0; r < w.rows; ++r) {
        const char* column[kLanes];
        for (int b = 0; b < kLanes; ++b) column[b] = reinterpret_cast<const char*>(&p.y[r][b]);
        Vec y_of[kLanes];  // by channel
        load_turned(column, 0, y_of);
        FinishArgs f = w.finish;
        f.at += r * w.width, f.col += r * w.width;
        float* y = w.y + first * w.plane + r * w.width + 2 * block;
        for (int c = 0; c < channels; ++c, y += w.plane) {
          const Vec z = w.bias ? y_of[c] + splat(w.bias[first + c]) : y_of[c];
          store_some(y, finished<C>(z, f, first + c, 2 * block, columns), columns);
        }
      }
    }
  }
  bool finite = true;
  for (int i = 0; i < kLanes; ++i) finite = finite && zero[i] == zero[i];
  return finite;
}

bool out(const WinogradOut& w) {
  return with_chain(w.finish, [&](auto c) { return out_with<c()>(w); });
}

}  // namespace

const WinogradIsa& CPU_CAT(winograd_, CPU_ISA_NAME)() {
  // Two vectors hold the columns of so many blocks and the two behind them.
  static constexpr WinogradIsa isa{kLanes - 1, in, out};
  return isa;
}

}  // namespace cpu
