// SPDX-License-Identifier: Apache-2.0
// The cost of one recompile: a function of one op, called with a size that it has not been compiled for, on the null backend:
// capture, guards, passes, assignment, plan, kernel, and the call itself. Through tessera::compile, as a program would. Median
// of many.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

using tessera::Tensor;

// Microseconds per first call with a new size.
double measure(tessera::Dynamic dynamic, bool fresh) {
  constexpr int kRounds = 400;
  const auto make = [&] {
    return tessera::compile(
        [](const Tensor& x) { return x + 1; },
        {.dynamic = dynamic, .options = {"guards.recompile_limit=100000", "guards.accumulated_recompile_limit=100000"}});
  };
  auto f = make();
  f(tessera::ones({1}));
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    if (fresh) f = make();
    const Tensor x = tessera::ones({i + 2});
    const auto start = std::chrono::steady_clock::now();
    f(x);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else {
      std::fprintf(stderr,
                   "usage: bench-recompile [--json]\nmicroseconds per compile of a one-op function on the null backend.\n"
                   "example: bench-recompile --json\n");
      return std::strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }
  try {
    const tessera::Context context("null");
    const tessera::ContextScope scope(context);
    const double first = measure(tessera::Dynamic::no, true), again = measure(tessera::Dynamic::no, false);
    const double dynamic = measure(tessera::Dynamic::yes, true);
    std::printf(json ? "{\"schema\": \"tessera.bench.recompile/1\", \"unit\": \"us\", \"first\": %.1f, \"recompile\": %.1f, "
                       "\"first_dynamic\": %.1f}\n"
                     : "first compile      %8.1f us\nrecompile          %8.1f us\nfirst, dynamic     %8.1f us\n",
                first, again, dynamic);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  return 0;
}
