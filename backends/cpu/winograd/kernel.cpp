// SPDX-License-Identifier: Apache-2.0
// Winograd's transforms of input values and of results, compiled once per instruction set, for blocks of M x M results. Input
// values have blocks along the lanes: M vectors of a row are combined with those of other rows first, and then picked apart by
// their place in a block. Sums have output channels along the lanes, as products leave them, and are transposed on their way to
// memory.
#include "winograd/tables.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "gemm/isa/finish.hpp"
#include "gemm/isa/lanes.hpp"
#include "gemm/isa/store_transposed.hpp"
#include "winograd/filtering.hpp"

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

#if defined(__AVX512F__)
// The first n lanes of the upper half.
[[gnu::always_inline]] inline void store_upper(float* p, Vec v, int n) {
  _mm512_mask_storeu_ps(p - kLanes / 2, static_cast<__mmask16>(((1u << n) - 1) << (kLanes / 2)), reinterpret_cast<__m512>(v));
}
#endif

// Lane i + 1 in lane i.
template <int... I>
[[gnu::always_inline]] inline Vec rotated_by_one(Vec v, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(v, v, ((I + 1) % kLanes)...);
}
[[gnu::always_inline]] inline Vec rotated_by_one(Vec v) { return rotated_by_one(v, std::make_integer_sequence<int, kLanes>()); }

// Column i of the blocks in d[i], from vectors of columns side by side.
[[gnu::always_inline]] inline void pick_apart(const Vec (&x)[2], Vec (&d)[4]) {
  d[0] = every_second<0>(x[0], x[1]), d[1] = every_second<1>(x[0], x[1]);
  d[2] = rotated_by_one(d[0]), d[3] = rotated_by_one(d[1]);
}
[[gnu::always_inline]] inline void pick_apart(const Vec (&x)[4], Vec (&d)[6]) {
  const Vec a0 = every_second<0>(x[0], x[1]), a1 = every_second<1>(x[0], x[1]), b0 = every_second<0>(x[2], x[3]),
            b1 = every_second<1>(x[2], x[3]);
  d[0] = every_second<0>(a0, b0), d[1] = every_second<0>(a1, b1), d[2] = every_second<1>(a0, b0),
  d[3] = every_second<1>(a1, b1);
  d[4] = rotated_by_one(d[0]), d[5] = rotated_by_one(d[1]);
}

enum class Put {
  Some,   // the blocks that there are
  Whole,  // whole vectors: what one writes behind its blocks is written again with a later channel
  Pairs,  // two channels in the halves of a vector
};

template <int M>
struct Sides {
  Window part[M];    // of the vectors of a row
  bool seen[M + 2];  // rows

  explicit Sides(const WinogradIn& w, std::integer_sequence<int, 0, 1>) : part{at(w, 0), at(w, 1)} {}
  explicit Sides(const WinogradIn& w, std::integer_sequence<int, 0, 1, 2, 3>) : part{at(w, 0), at(w, 1), at(w, 2), at(w, 3)} {}
  static Window at(const WinogradIn& w, int i) { return Window(-w.column - i * kLanes, w.width - w.column - i * kLanes); }
};

// Channels [begin, end).
template <int M, Put P>
void in_channels(const WinogradIn& w, const Sides<M>& s, int64_t begin, int64_t end) {
  constexpr int kStep = P == Put::Pairs ? 2 : 1;
  const float* x = w.x + w.row * w.width + w.column + begin * w.plane;
  float* v = w.v + begin * w.step;
  const int stored = P == Put::Whole ? kLanes : w.blocks;
  for (int64_t c = begin; c < end; c += kStep, x += kStep * w.plane, v += kStep * w.step) {
    Vec columns[M][M + 2];
#pragma GCC unroll 4
    for (int i = 0; i < M; ++i) {
      const int of_row = P == Put::Pairs ? i % (M / 2) : i;
      Vec d[M + 2];
#pragma GCC unroll 6
      for (int r = 0; r < M + 2; ++r) {
        d[r] = Vec{};
        if (!s.seen[r]) continue;
        const float* from = x + (of_row == i ? 0 : w.plane) + r * w.width + of_row * kLanes;
        if (of_row == 0) __builtin_prefetch(from + 4 * w.plane);
        d[r] = s.part[of_row].get(from);
      }
      Filtering<M>::forward(d, columns[i]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < M + 2; ++r) {
      Vec row[M], d[M + 2], points[M + 2];
#pragma GCC unroll 4
      for (int i = 0; i < M; ++i) row[i] = columns[i][r];
      pick_apart(row, d);
      Filtering<M>::forward(d, points);
#pragma GCC unroll 6
      for (int i = 0; i < M + 2; ++i) {
        float* to = v + ((M + 2) * r + i) * w.point;
        store_some(to, points[i], stored);
        if constexpr (P == Put::Pairs) store_upper(to + w.step, points[i], stored);
      }
    }
  }
}

template <int M>
void in(const WinogradIn& w) {
  Sides<M> s(w, std::make_integer_sequence<int, M>());
  for (int r = 0; r < M + 2; ++r) s.seen[r] = w.row + r >= 0 && w.row + r < w.height;
  int64_t done = 0;
  if constexpr (kLanes == 16) {  // stores some lanes as fast as all
    if (w.blocks < kLanes / 2) {
      done = w.channels / 2 * 2;
      in_channels<M, Put::Pairs>(w, s, 0, done);
    }
  } else {
    const int64_t last = w.first ? (kLanes - 1) / w.step : w.channels;
    done = w.channels > last ? w.channels - last : 0;
    in_channels<M, Put::Whole>(w, s, 0, done);
  }
  in_channels<M, Put::Some>(w, s, done, w.channels);
}

// Results of kLanes channels from `first` on, of M columns for each of `blocks` blocks (at most kLanes / M): y[row][column],
// lanes are channels.
template <int M>
[[gnu::always_inline]] inline Vec gathered(const WinogradOut& w, int first, int block, int blocks, Vec (&y)[M][kLanes]) {
  Vec zero{};
  for (int b = 0; b < blocks; ++b) {
    const float* m = w.m + (block + b) * w.step + first;
    Vec rows[M + 2][M];
#pragma GCC unroll 6
    for (int r = 0; r < M + 2; ++r) {
      Vec points[M + 2];
#pragma GCC unroll 6
      for (int i = 0; i < M + 2; ++i) points[i] = load(m + ((M + 2) * r + i) * w.point);
      Filtering<M>::back(points, rows[r]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < M; ++c) {
      Vec column[M + 2], results[M];
#pragma GCC unroll 6
      for (int r = 0; r < M + 2; ++r) column[r] = rows[r][c];
      Filtering<M>::back(column, results);
#pragma GCC unroll 4
      for (int r = 0; r < M; ++r) {
        y[r][M * b + c] = results[r];
        zero += results[r] * Vec{};  // NaN from then on if one of them is not finite
      }
    }
  }
  return zero;
}

template <int M, Chain C>
bool out_with(const WinogradOut& w) {
  constexpr int kBlocks = kLanes / M;
  Vec zero{};
  for (int first = 0; first < w.channels; first += kLanes) {
    const int channels = lanes_of(w.channels - first);
    for (int block = 0; block < w.blocks; block += kBlocks) {
      const int blocks = w.blocks - block < kBlocks ? w.blocks - block : kBlocks;
      const int columns = lanes_of(w.columns - M * block);
      Vec results[M][kLanes];
      zero += gathered<M>(w, first, block, blocks, results);
      for (int b = M * blocks; b < kLanes; ++b)
        for (int r = 0; r < M; ++r) results[r][b] = Vec{};
      for (int r = 0; r < w.rows; ++r) {
        const char* column[kLanes];
        for (int b = 0; b < kLanes; ++b) column[b] = reinterpret_cast<const char*>(&results[r][b]);
        Vec y_of[kLanes];  // by channel
        load_transposed(column, 0, y_of);
        FinishArgs f = w.finish;
        f.at += r * w.width, f.col += r * w.width;
        float* y = w.y + first * w.plane + r * w.width + M * block;
        for (int c = 0; c < channels; ++c, y += w.plane) {
          const Vec z = w.bias ? y_of[c] + splat(w.bias[first + c]) : y_of[c];
          store_some(y, finished<C>(z, f, first + c, M * block, columns), columns);
        }
      }
    }
  }
  bool finite = true;
  for (int i = 0; i < kLanes; ++i) finite = finite && zero[i] == zero[i];
  return finite;
}

template <int M>
bool out(const WinogradOut& w) {
  return with_chain(w.finish, [&](auto c) { return out_with<M, c()>(w); });
}

// Channel `channel` of kLanes output channels, whose filters lie tap by tap in `taps`, for blocks of 2 x 2.
[[gnu::always_inline]] inline void filter_of(const WinogradFilters& w, const Vec* taps, int64_t channel, int first) {
  constexpr int kSide = 4;
  Vec columns[3][kSide];
#pragma GCC unroll 3
  for (int x = 0; x < 3; ++x) {
    const Vec g[3] = {taps[x], taps[3 + x], taps[6 + x]};
    Filtering<2>::filter(g, columns[x]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kSide; ++r) {
    const Vec g[3] = {columns[0][r], columns[1][r], columns[2][r]};
    Vec points[kSide];
    Filtering<2>::filter(g, points);
#pragma GCC unroll 4
    for (int i = 0; i < kSide; ++i) store(w.u + ((kSide * r + i) * w.channels + channel) * w.nr + first, points[i]);
  }
}

void filters(const WinogradFilters& w) {
  constexpr int kTaps = 9;
  for (int first = 0; first < w.nr; first += kLanes) {
    const int outputs = lanes_of(w.outputs - first);
    if (outputs <= 0) {  // nobody reads what they give; a micro-kernel multiplies them
      const Vec zeros[kTaps] = {};
      for (int64_t c = w.from; c < w.to; ++c) filter_of(w, zeros, c, first);
      continue;
    }
    const char* rows[kLanes];
    for (int o = 0; o < kLanes; ++o)
      rows[o] = reinterpret_cast<const char*>(w.g + (first + (o < outputs ? o : outputs - 1)) * w.channels * kTaps);
    int64_t c = w.from;
    for (; c + kLanes <= w.to; c += kLanes) {
      Vec taps[kTaps * kLanes];
      for (int t = 0; t < kTaps; ++t) {
        Vec square[kLanes];
        load_transposed(rows, (c * kTaps + t * kLanes) * static_cast<int64_t>(sizeof(float)), square);
        for (int i = 0; i < kLanes; ++i) taps[t * kLanes + i] = square[i];
      }
      for (int i = 0; i < kLanes; ++i) filter_of(w, taps + i * kTaps, c + i, first);
    }
    for (; c < w.to; ++c) {
      Vec taps[kTaps];
      for (int t = 0; t < kTaps; ++t) {
        float of_outputs[kLanes];
        for (int o = 0; o < kLanes; ++o) of_outputs[o] = reinterpret_cast<const float*>(rows[o])[c * kTaps + t];
        taps[t] = load(of_outputs);
      }
      filter_of(w, taps, c, first);
    }
  }
}

}  // namespace

const WinogradIsa& CPU_CAT(winograd_, CPU_ISA_NAME)(int size) {
  // M vectors hold the columns of so many blocks of M, and the two behind them.
  static constexpr WinogradIsa two{2, kLanes - 1, filters, in<2>, out<2>}, four{4, kLanes - 1, nullptr, in<4>, out<4>};
  return size == 2 ? two : four;
}

}  // namespace cpu
