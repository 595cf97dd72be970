// SPDX-License-Identifier: Apache-2.0
// 16-bit floats to and from f32, the same bits as half_to_float and its kin in tessera/dtypes.hpp (their header is not included
// here: its inline functions would be compiled for this ISA and kept for all).
#include "isa.hpp"
#include "tile_loops.hpp"
#include "vec_math.hpp"

namespace eager {

void EAGER_ISA(f16_to_f32)(const uint16_t* s, float* d, int64_t n) {
  EAGER_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t h = s[i];
    const uint32_t sign = (h & 0x8000u) << 16;
    const uint32_t mag = (h & 0x7FFFu) << 13;
    const uint32_t special = mag + ((255u - 31u) << 23) + (mag > 0x0F800000u ? (~mag & 0x400000u) : 0u);
    const uint32_t normal = mag + ((127u - 15u) << 23);
    const uint32_t small = bits<uint32_t>(bits<float>(mag + (113u << 23)) - bits<float>(113u << 23));
    d[i] = bits<float>(sign | (mag >= 0x0F800000u ? special : mag >= 0x00800000u ? normal : small));
  }
}

void EAGER_ISA(f32_to_f16)(const float* s, uint16_t* d, int64_t n) {
  EAGER_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t raw = bits<uint32_t>(s[i]);
    const uint32_t mag = raw & 0x7FFFFFFFu;
    const uint32_t special = mag > 0x7F800000u ? 0x7E00u | ((mag >> 13) & 0x3FFu) : 0x7C00u;
    const uint32_t normal = (mag + 0xC8000FFFu + ((mag >> 13) & 1u)) >> 13;
    const uint32_t small = bits<uint32_t>(bits<float>(mag) + 0.5f) - 0x3F000000u;
    const uint32_t code = mag >= 0x47800000u ? special : mag < 0x38800000u ? small : normal;
    d[i] = static_cast<uint16_t>(((raw ^ mag) >> 16) | code);
  }
}

void EAGER_ISA(bf16_to_f32)(const uint16_t* s, float* d, int64_t n) {
  EAGER_SIMD
  for (int64_t i = 0; i < n; ++i) d[i] = bits<float>(static_cast<uint32_t>(s[i]) << 16);
}

void EAGER_ISA(f32_to_bf16)(const float* s, uint16_t* d, int64_t n) {
  EAGER_SIMD
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t raw = bits<uint32_t>(s[i]);
    const uint32_t rounded = (raw + 0x7FFFu + ((raw >> 16) & 1u)) >> 16;
    d[i] = static_cast<uint16_t>((raw & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FC0u : rounded);
  }
}

}  // namespace eager
