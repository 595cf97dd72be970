// SPDX-License-Identifier: Apache-2.0
#include "tessera/kit/program/order.hpp"

#include <vector>

#include "../interpret_parts.hpp"

namespace tessera::kit {
namespace {

using States = std::vector<State>;

State halves(const Reducer& r, States s) {
  for (size_t w = s.size() / 2; w > 0; w /= 2)
    for (size_t j = 0; j < w; ++j) s[j] = r.combine(s[j], s[j + w]);
  return s[0];
}

// `at(step, element)`: of the chunk's rows; elements of a row are numbered thread by thread.
template <class At>
State reduce_chunk(const Reducer& r, const SimtOrder& o, int64_t steps, At at) {
  constexpr auto kVector = static_cast<size_t>(SimtOrder::kVector), kThreads = static_cast<size_t>(SimtOrder::kThreads);
  States threads;
  for (size_t t = 0; t < kThreads; ++t) {
    States running(o.by_halves ? 1 : kVector, r.identity());
    for (int64_t s = 0; s < steps; ++s) {
      States v;
      for (size_t j = 0; j < kVector; ++j) v.push_back(at(s, static_cast<int64_t>(t * kVector + j)));
      if (o.by_halves)
        running[0] = r.combine(running[0], halves(r, v));
      else
        for (size_t j = 0; j < kVector; ++j) running[j] = r.combine(running[j], v[j]);
    }
    threads.push_back(halves(r, running));
  }
  return halves(r, threads);
}

State along(const Reducer& r, const SimtOrder& o, std::span<const State> x, bool top = true) {
  const auto n = static_cast<int64_t>(x.size());
  const auto element = [&](int64_t i) { return i < n ? x[static_cast<size_t>(i)] : r.identity(); };
  const bool turns = o.interleaved && top;
  const int64_t chunks = turns ? 8 : std::max<int64_t>(1, (n + o.chunk() - 1) / o.chunk());
  const int64_t steps = turns ? (n + 8 * SimtOrder::kRow - 1) / (8 * SimtOrder::kRow) : o.steps;
  States results;
  for (int64_t c = 0; c < chunks; ++c)
    results.push_back(reduce_chunk(r, o, steps, [&](int64_t s, int64_t e) {
      return element(turns ? (s * 8 + c) * SimtOrder::kRow + e : c * o.chunk() + s * SimtOrder::kRow + e);
    }));
  return results.size() == 1 ? results[0] : along(r, o, results, false);
}

State across(const Reducer& r, const SimtOrder& o, std::span<const State> x) {
  const auto n = static_cast<int64_t>(x.size());
  const int64_t run = o.run_of(n), block = run * o.fan, blocks = std::max<int64_t>(1, (n + block - 1) / block);
  States results;
  for (int64_t b = 0; b < blocks; ++b) {
    States runs(static_cast<size_t>(o.fan), r.identity());
    for (int64_t j = 0; j < o.fan; ++j)
      for (int64_t i = 0; i < run; ++i) {
        const int64_t at = b * block + (o.interleaved_runs ? i * o.fan + j : j * run + i);
        State& s = runs[static_cast<size_t>(j)];
        if (at < n) s = r.combine(s, x[static_cast<size_t>(at)]);
      }
    results.push_back(halves(r, runs));
  }
  return results.size() == 1 ? results[0] : across(r, o, results);
}

}  // namespace

uint32_t interpret(const Kernel& k, std::span<void* const> buffers, std::span<const int64_t> symbols, const SimtOrder& order) {
  return interpret_in(k, buffers, symbols, [&](const Reducer& r, std::span<const State> points, bool is_across) {
    return is_across ? across(r, order, points) : along(r, order, points);
  });
}

}  // namespace tessera::kit
