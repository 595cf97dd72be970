// SPDX-License-Identifier: Apache-2.0
// Gathers panels of input values, compiled once per instruction set. Columns come in runs, one per row of the output that they
// lie in; within a run they are `step` apart. With a step of 1, or 2 where vectors can be picked apart, each run is a masked
// load or two; lanes that lie in the padding are masked, so nothing is read there.
#include "gather/tables.hpp"
#include "gemm/isa/lanes.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define CPU_CAT2(a, b) a##b
#define CPU_CAT(a, b)  CPU_CAT2(a, b)

namespace cpu {
namespace {

void one_by_one(const GatherArgs& g) {
  int64_t channel = g.k0 / g.taps;
  int tap = static_cast<int>(g.k0 % g.taps);
  float* out = g.out;
  for (int64_t k = 0; k < g.count; ++k, out += g.width) {
    const float* from = g.x + channel * g.plane + g.tap_at[tap];
    for (int j = 0; j < g.width; ++j) out[j] = g.seen[tap] >> j & 1 ? from[g.column_at[j]] : 0.0f;
    if (++tap == g.taps) tap = 0, ++channel;
  }
}

#if defined(__AVX2__)

// Lanes of one vector whose columns follow each other: lane j is at base + step * j.
struct LaneRun {
  int64_t base;
  uint32_t lanes;
};
constexpr int kMaxRuns = 4;

#if defined(__AVX512F__)
using Mask = __mmask16;
Mask mask_of(uint32_t bits) { return static_cast<Mask>(bits); }
[[gnu::always_inline]] inline __m512 load_more(__m512 v, const float* p, Mask m) { return _mm512_mask_loadu_ps(v, m, p); }
using Register = __m512;
[[gnu::always_inline]] inline Register zero() { return _mm512_setzero_ps(); }
[[gnu::always_inline]] inline Register pick(const float* p, const int32_t* at, uint32_t seen) {
  return _mm512_mask_i32gather_ps(zero(), mask_of(seen), _mm512_loadu_si512(at), p, 4);
}
#else
using Mask = __m256i;
Mask mask_of(uint32_t seen) {
  const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(static_cast<int>(seen)), bits), bits);
}
using Register = __m256;
[[gnu::always_inline]] inline Register zero() { return _mm256_setzero_ps(); }
[[gnu::always_inline]] inline Register load_more(Register v, const float* p, Mask m) {
  return _mm256_or_ps(v, _mm256_maskload_ps(p, m));
}
[[gnu::always_inline]] inline Register pick(const float* p, const int32_t* at, uint32_t seen) {
  return _mm256_mask_i32gather_ps(zero(), p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)),
                                  _mm256_castsi256_ps(mask_of(seen)), 4);
}
#endif

template <bool kWhole>
[[gnu::always_inline]] inline void put(float* p, Register v, int lanes) {
  store_some(p, reinterpret_cast<Vec>(v), kWhole ? kLanes : lanes);
}

// One vector of one tap in all of the panel's channels: channel i at from + i * plane, to out + i * rows.
struct Walk {
  const float* from;
  int64_t plane;
  float* out;
  int64_t rows, channels, ahead;
  int lanes;  // that are written
};

template <int N, bool kWhole>
void along(const Walk& w, const LaneRun* runs, uint32_t seen) {
  Mask m[N];
  for (int n = 0; n < N; ++n) m[n] = mask_of(runs[n].lanes & seen);
  const float* from = w.from;
  float* out = w.out;
  for (int64_t c = 0; c < w.channels; ++c, from += w.plane, out += w.rows) {
    __builtin_prefetch(from + runs[0].base + w.ahead);
    Register v = zero();
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) v = load_more(v, from + runs[n].base, m[n]);
    put<kWhole>(out, v, w.lanes);
  }
}

// Every second element of two vectors in a row.
template <int N, bool kWhole>
void along_two(const Walk& w, const LaneRun* runs, uint32_t seen) {
  constexpr uint32_t kEven = 0x55555555u;
  Mask low[N], high[N];
  for (int n = 0; n < N; ++n) {
    low[n] = mask_of(_pdep_u32(runs[n].lanes & seen, kEven >> (32 - kLanes)));
    high[n] = mask_of(_pdep_u32((runs[n].lanes & seen) >> kLanes / 2, kEven >> (32 - kLanes)));
  }
  const float* from = w.from;
  float* out = w.out;
  for (int64_t c = 0; c < w.channels; ++c, from += w.plane, out += w.rows) {
    __builtin_prefetch(from + runs[0].base + w.ahead);
    Register a = zero(), b = zero();
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      a = load_more(a, from + runs[n].base, low[n]);
      b = load_more(b, from + runs[n].base + kLanes, high[n]);
    }
    put<kWhole>(out, reinterpret_cast<Register>(every_second<0>(reinterpret_cast<Vec>(a), reinterpret_cast<Vec>(b))), w.lanes);
  }
}

// The runs of `lanes` columns, as far as some tap sees them; more than kMaxRuns: there are too many.
int runs_of(const int64_t* columns, int lanes, uint32_t used, int64_t step, LaneRun* runs) {
  int n = 0;
  for (int j = 0; j < lanes; ++j) {
    if (!(used >> j & 1)) continue;
    const int64_t base = columns[j] - step * j;
    if (n == 0 || base != runs[n - 1].base) {
      if (n == kMaxRuns) return n + 1;
      runs[n++] = {base, 0};
    }
    runs[n - 1].lanes |= 1u << j;
  }
  return n;
}

template <bool kWhole>
void one_tap(const Walk& w, const LaneRun* runs, int count, int64_t step, uint32_t seen, const int64_t* columns) {
  if (step == 2) switch (count) {
      case 0:
      case 1: return along_two<1, kWhole>(w, runs, seen);
      case 2: return along_two<2, kWhole>(w, runs, seen);
      case 3: return along_two<3, kWhole>(w, runs, seen);
      case 4: return along_two<4, kWhole>(w, runs, seen);
      default: break;
    }
  if (step == 1) switch (count) {
      case 0:
      case 1: return along<1, kWhole>(w, runs, seen);
      case 2: return along<2, kWhole>(w, runs, seen);
      case 3: return along<3, kWhole>(w, runs, seen);
      case 4: return along<4, kWhole>(w, runs, seen);
      default: break;
    }
  int32_t at[kLanes] = {};
  for (int j = 0; j < w.lanes; ++j) at[j] = static_cast<int32_t>(columns[j] - columns[0]);
  for (int64_t c = 0; c < w.channels; ++c) {
    const float* from = w.from + c * w.plane + columns[0];
    __builtin_prefetch(from + w.ahead);
    put<kWhole>(w.out + c * w.rows, pick(from, at, seen), w.lanes);
  }
}

struct Depth {
  int64_t at;
  int tap;
  Depth(const GatherArgs& g, int64_t k) : at(k / g.taps), tap(static_cast<int>(k % g.taps)) {}
  // The first one whose depth of tap t is not before this.
  int64_t channel(int t) const { return at + (t < tap ? 1 : 0); }
};

// Columns [first, first + lanes), tap by tap.
void vector(const GatherArgs& g, int first, int lanes) {
  const int64_t* columns = g.column_at + first;
  const uint32_t all = (1u << lanes) - 1;
  uint32_t used = 0;
  for (int t = 0; t < g.taps; ++t) used |= g.seen[t] >> first & all;
  LaneRun runs[kMaxRuns] = {};
  const int count = runs_of(columns, lanes, used, g.step, runs);
  const Depth low(g, g.k0), high(g, g.k0 + g.count);
  for (int t = 0; t < g.taps; ++t) {
    const int64_t channel = low.channel(t), channels = high.channel(t) - channel, depth = channel * g.taps + t;
    if (channels <= 0) continue;
    const Walk w{g.x + channel * g.plane + g.tap_at[t], g.plane, g.out + (depth - g.k0) * g.width + first,
                 static_cast<int64_t>(g.taps) * g.width, channels,
                 // Channels are far apart: what is read some rows later is fetched now.
                 g.plane * (g.taps == 1 ? 12 : 2), lanes};
    const uint32_t seen = g.seen[t] >> first & all;
    if (lanes == kLanes)
      one_tap<true>(w, runs, count, g.step, seen, columns);
    else
      one_tap<false>(w, runs, count, g.step, seen, columns);
  }
}

#endif

// Row by row: a stretch of a row is read in one go, however far apart rows are.
void spread(const SpreadArgs& s) {
  constexpr int kNR = 2 * kLanes;
  constexpr int64_t kAhead = 4;  // rows
  const int whole = s.cols / kNR, rest = s.cols % kNR;
  const float* from = s.from;
  float* out = s.out;
  for (int64_t k = 0; k < s.count; ++k, from += s.row, out += kNR) {
    float* to = out;
    const float* x = from;
    for (int i = 0; i < whole; ++i, x += kNR, to += s.step) {
      __builtin_prefetch(x + kAhead * s.row, 0, 2);
      __builtin_prefetch(x + kAhead * s.row + kNR - 1, 0, 2);
      store(to, load(x));
      store(to + kLanes, load(x + kLanes));
    }
    if (rest > 0) {
      const int low = rest < kLanes ? rest : kLanes;
      store(to, load_some(x, low));
      if (rest > low) store(to + kLanes, load_some(x + kLanes, rest - low));
    }
  }
}

template <int Vectors>
void pick(const PickArgs& p) {
  int tap = static_cast<int>(p.k0 % p.taps);
  float* out = p.out;
  for (const float* x = p.x + p.k0 / p.taps * p.plane;; x += p.plane, tap = 0)
    for (; tap < p.taps; ++tap, out += 2 * kLanes) {
      if (out == p.out + p.count * 2 * kLanes) return;
      for (int v = 0; v < Vectors; ++v) store(out + v * kLanes, load(x + p.tap_at[tap] + p.vector_at[v]));
    }
}

}  // namespace

void CPU_CAT(pick_, CPU_ISA_NAME)(const PickArgs& p) { p.vectors == 2 ? pick<2>(p) : pick<1>(p); }
void CPU_CAT(spread_, CPU_ISA_NAME)(const SpreadArgs& s) { spread(s); }
void CPU_CAT(gather_, CPU_ISA_NAME)(const GatherArgs& g) {
#if defined(__AVX2__)
  if (!g.near) return one_by_one(g);
  for (int first = 0; first < g.width; first += kLanes) vector(g, first, g.width - first < kLanes ? g.width - first : kLanes);
#else
  one_by_one(g);
#endif
}

}  // namespace cpu
