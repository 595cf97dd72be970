// SPDX-License-Identifier: Apache-2.0
// What those who measure kernels have in common.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "tessera/dtypes.hpp"

namespace tessera::kit {

// Wall-clock time that a plan has left for measuring.
class MeasuringBudget {
 public:
  using Clock = std::chrono::steady_clock;
  explicit MeasuringBudget(double seconds)
      : end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  double left() const { return std::chrono::duration<double>(end_ - Clock::now()).count(); }
  bool spent() const { return left() <= 0; }

 private:
  Clock::time_point end_;
};

struct Unmeasurable {
  std::string why;
};

// Numbers that do not make a loop end early or a float subnormal: floats in (-1, 1), ones elsewhere, which no division minds.
inline void fill_for_measuring(uint32_t dtype, char* to, int64_t n) {
  uint64_t state = 0x9E3779B97F4A7C15u;
  const auto next = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<double>(state >> 11) * 0x1p-52 - 1;
  };
  const bool floats = dtype == TSR_F32 || dtype == TSR_F64 || dtype == TSR_BF16 || dtype == TSR_F16;
  for (int64_t i = 0; i < n; ++i) store_from(dtype, to, i, floats ? next() : 1.0);
}

}  // namespace tessera::kit
