// SPDX-License-Identifier: Apache-2.0
// Vectors of the instruction set that a file is compiled for. Everything here has internal linkage: one copy per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

namespace cpu {
namespace {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif

typedef float Vec __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));

[[gnu::always_inline]] inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
[[gnu::always_inline]] inline void store(float* p, Vec v) { std::memcpy(p, &v, sizeof v); }
// x - 0 is x, and the compiler knows; 0 + x would turn -0 into 0.
[[gnu::always_inline]] inline Vec splat(float x) { return x - Vec{}; }

}  // namespace
}  // namespace cpu
