// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 over blocks side by side, and Box-Muller from its words, compiled once per ISA (docs/random.md is the
// definition).
#include "isa.hpp"
#include "tile_loops.hpp"
#include "vec_math.hpp"

namespace eager {

void EAGER_ISA(philox)(uint64_t key, uint64_t counter, int64_t blocks, uint32_t* out) {
  constexpr int64_t kSide = 16;
  for (int64_t start = 0; start < blocks; start += kSide) {
    uint32_t x0[kSide], x1[kSide], x2[kSide], x3[kSide];
    for (int64_t j = 0; j < kSide; ++j) {
      const uint64_t c = counter + static_cast<uint64_t>(start + j);
      x0[j] = static_cast<uint32_t>(c);
      x1[j] = static_cast<uint32_t>(c >> 32);
      x2[j] = x3[j] = 0;
    }
    uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
      EAGER_SIMD
      for (int64_t j = 0; j < kSide; ++j) {
        const uint64_t p0 = uint64_t{0xD2511F53} * x0[j], p1 = uint64_t{0xCD9E8D57} * x2[j];
        const uint32_t y0 = static_cast<uint32_t>(p1 >> 32) ^ x1[j] ^ k0, y2 = static_cast<uint32_t>(p0 >> 32) ^ x3[j] ^ k1;
        x1[j] = static_cast<uint32_t>(p1);
        x3[j] = static_cast<uint32_t>(p0);
        x0[j] = y0;
        x2[j] = y2;
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    const int64_t n = blocks - start < kSide ? blocks - start : kSide;
    for (int64_t j = 0; j < n; ++j) {
      uint32_t* o = out + 4 * (start + j);
      o[0] = x0[j], o[1] = x1[j], o[2] = x2[j], o[3] = x3[j];
    }
  }
}

// Pairs of words to pairs of f32 values, in f64 inside. The angle is at most 2 pi, where dsincos is exact to 1e-16.
void EAGER_ISA(box_muller)(const uint32_t* words, int64_t pairs, float* out) {
  EAGER_SIMD
  for (int64_t i = 0; i < pairs; ++i) {
    const double u = static_cast<double>(static_cast<int32_t>(words[2 * i] >> 8) + 1) * 0x1p-24;
    const double v = static_cast<double>(static_cast<int32_t>(words[2 * i + 1] >> 8)) * 0x1p-24;
    const double r = __builtin_sqrt(-2.0 * dlog(u)), angle = 6.283185307179586476925 * v;
    out[2 * i] = static_cast<float>(r * dsincos(angle, 1));
    out[2 * i + 1] = static_cast<float>(r * dsincos(angle, 0));
  }
}

}  // namespace eager
