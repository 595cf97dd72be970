// SPDX-License-Identifier: Apache-2.0
// Winograd's transforms of input values and of results, compiled once per instruction set. Input values have blocks along the lanes: two vectors of a row are
// combined with those of other rows first, and then picked apart into even and odd columns. Sums have output channels along the lanes, as products leave
// them, and are transposed on their way to memory.
#include "winograd/tables.hpp"

#include <utility>
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

// Lanes [low, high) of a vector in memory; nothing else is read or written.
struct Window {
#if defined(__AVX512F__)
  __mmask16 mask;
  Window(int64_t low, int64_t high) {
    const auto bits = [](int64_t n) { return n <= 0 ? 0u : n >= kLanes ? 0xffffu : (1u << n) - 1; };
    mask = static_cast<__mmask16>(bits(high) & ~bits(low));
  }
  [[gnu::always_inline]] Vec get(const float* p) const { return reinterpret_cast<Vec>(_mm512_maskz_loadu_ps(mask, p)); }
  [[gnu::always_inline]] void put(float* p, Vec v) const { _mm512_mask_storeu_ps(p, mask, reinterpret_cast<__m512>(v)); }
#elif defined(__AVX2__)
  __m256i mask;
  Window(int64_t low, int64_t high) {
    const auto bound = [](int64_t n) { return _mm256_set1_epi32(static_cast<int>(n < 0 ? 0 : n > kLanes ? kLanes : n)); };
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    mask = _mm256_andnot_si256(_mm256_cmpgt_epi32(bound(low), lanes), _mm256_cmpgt_epi32(bound(high), lanes));
  }
  [[gnu::always_inline]] Vec get(const float* p) const { return reinterpret_cast<Vec>(_mm256_maskload_ps(p, mask)); }
  [[gnu::always_inline]] void put(float* p, Vec v) const { _mm256_maskstore_ps(p, mask, reinterpret_cast<__m256>(v)); }
#else
  int low, high;
  Window(int64_t l, int64_t h) : low(static_cast<int>(l < 0 ? 0 : l)), high(static_cast<int>(h > kLanes ? kLanes : h)) {}
  Vec get(const float* p) const {
    Vec v{};
    for (int i = low; i < high; ++i) v[i] = p[i];
    return v;
  }
  void put(float* p, Vec v) const {
    for (int i = low; i < high; ++i) p[i] = v[i];
  }
#endif
};

// Every second lane of a and b, from lane First on; lanes behind the end are anything.
template <int First, int... I>
[[gnu::always_inline]] inline Vec picked(Vec a, Vec b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (First + 2 * I < 2 * kLanes ? First + 2 * I : 0)...);
}

void in(const WinogradIn& w) {
  constexpr std::make_integer_sequence<int, kLanes> all;
  const int64_t low = -w.column, high = w.width - w.column;
  const Window left(low, high), right(low - kLanes, high - kLanes), written(0, w.blocks);
  bool seen[4];
  for (int r = 0; r < 4; ++r) seen[r] = w.row + r >= 0 && w.row + r < w.height;
  const float* x = w.x + w.row * w.width + w.column;
  float* v = w.v;
  for (int64_t c = 0; c < w.channels; ++c, x += w.plane, v += w.step) {
    Vec a[4], b[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      a[r] = b[r] = Vec{};
      if (!seen[r]) continue;
      const float* from = x + r * w.width;
      __builtin_prefetch(from + 4 * w.plane);
      a[r] = left.get(from);
      b[r] = right.get(from + kLanes);
    }
    const Vec ra[4] = {a[0] - a[2], a[1] + a[2], a[2] - a[1], a[1] - a[3]};
    const Vec rb[4] = {b[0] - b[2], b[1] + b[2], b[2] - b[1], b[1] - b[3]};
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const Vec d0 = picked<0>(ra[r], rb[r], all), d1 = picked<1>(ra[r], rb[r], all), d2 = picked<2>(ra[r], rb[r], all),
                d3 = picked<3>(ra[r], rb[r], all);
      float* to = v + 4 * r * w.point;
      written.put(to, d0 - d2);
      written.put(to + w.point, d1 + d2);
      written.put(to + 2 * w.point, d2 - d1);
      written.put(to + 3 * w.point, d1 - d3);
    }
  }
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
        transpose(p.y[r]);
        FinishArgs f = w.finish;
        f.at += r * w.width, f.col += r * w.width;
        float* y = w.y + first * w.plane + r * w.width + 2 * block;
        for (int c = 0; c < channels; ++c, y += w.plane) {
          const Vec z = w.bias ? p.y[r][c] + splat(w.bias[first + c]) : p.y[r][c];
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
