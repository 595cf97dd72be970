// SPDX-License-Identifier: Apache-2.0
// Who computes which rows of which planes of results.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "conv_shape.hpp"
#include "shares.hpp"
#include "tessera/plugin.hpp"

namespace cpu {

// Every plane of results, on `slots` threads at most: make(slot), on a thread of its own, gives what is called as work(plane,
// first, end) for rows of planes. Threads share images, or, where there are fewer than threads, rows of all planes, as other
// convolutions share positions; planes where rows are few.
template <class Make>
void each_plane(const ConvShape& s, int64_t planes, int64_t slots, Make&& make) {
  // Of a thread: smaller pieces of planes are not worth a call each, and what comes behind small planes (means, factors for
  // channels) is cut by planes.
  constexpr int64_t kRows = 28;
  const int64_t bands = s.images >= slots || s.out[0] < kRows * slots ? 1 : slots, units = planes * bands;
  const int64_t chunk = std::max<int64_t>(1, units / (slots * 8));
  // Bands end where lines of memory do, if they do: two threads that write to one wait for each other.
  constexpr int64_t kLine = 64 / sizeof(float);
  const int64_t rows = s.positions() % kLine == 0 ? kLine / std::gcd(kLine, s.out[1]) : 1;
  const auto cut = [&](int64_t band) { return band == bands ? s.out[0] : s.out[0] * band / bands / rows * rows; };
  Shares shares(units, slots);
  tessera::sdk::parallel(slots, 1, [&](int64_t begin, int64_t end) {
    for (int64_t slot = begin; slot < end; ++slot) {
      auto work = make(slot);
      for (int64_t from, to; shares.take(slot, chunk, 1, &from, &to);)
        for (int64_t u = from; u < to; ++u) {
          const int64_t band = u / planes, low = cut(band), high = cut(band + 1);
          if (low < high) work(u % planes, low, high);
        }
    }
  });
}

}  // namespace cpu
