// SPDX-License-Identifier: Apache-2.0
// The cost of calling a compiled function that has nothing to compute: flattening, guards, dispatch, one kernel launch on the null
// backend, and an f32[1] output that the caller releases. Through tessera::compile, as a program would call it.
//
//   tensors: by the number of argument tensors, one cached entry
//   entries: by the number of cached entries, called round robin: 8 tensors, static shapes; entries differ in the first tensor's
//            size only, the other seven tensors are shared
//
// Every argument is used by the graph, hence guarded. Each figure is the median of batches, so that a preempted one does not count.
// instructions.sh counts the instructions of a call instead: a number that another program on the machine does not change.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tessera/tessera.hpp"

namespace {

using tessera::Tensor;

// One f32[1] whatever comes in.
template <class... T>
Tensor gather_up(const T&... xs) {
  return tessera::cat({xs...}).sum({0}, true);
}

struct Options {
  bool json = false;
  std::string only;  // "tensors/8": this figure alone
  size_t calls = 0;  // with `only`: this many calls, not timed
};
Options options;

// ns per call of `call(i)`, i counting up.
template <class F>
double measure(F&& call) {
  if (options.calls > 0) {
    for (size_t i = 0; i < options.calls; ++i) call(i);
    return 0;
  }
  using Clock = std::chrono::steady_clock;
  constexpr int kBatches = 31;
  const auto run = [&](size_t begin, size_t n) {
    const auto start = Clock::now();
    for (size_t i = begin; i < begin + n; ++i) call(i);
    return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  };
  size_t n = 1000;
  while (run(0, n) < 5e6) n *= 2;  // batches of at least 5 ms
  std::vector<double> times;
  size_t at = 0;
  for (int b = 0; b < kBatches; ++b, at += n) times.push_back(run(at, n) / static_cast<double>(n));
  std::nth_element(times.begin(), times.begin() + kBatches / 2, times.end());
  return times[kBatches / 2];
}

const std::vector<std::string> kManyEntries = {"guards.recompile_limit=2000", "guards.accumulated_recompile_limit=100000"};

double by_tensors_1() {
  auto f = tessera::compile([](const Tensor& a) { return gather_up(a); }, {.dynamic = tessera::Dynamic::no});
  const Tensor a = tessera::ones({16});
  return measure([&](size_t) { f(a); });
}

auto compile_8() {
  return tessera::compile([](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
                             const Tensor& g, const Tensor& h, const Tensor& i) { return gather_up(a, b, c, d, e, g, h, i); },
                          {.dynamic = tessera::Dynamic::no, .options = kManyEntries});
}

double by_entries(size_t entries) {
  auto f = compile_8();
  std::vector<Tensor> first, shared;
  for (size_t i = 0; i < entries; ++i) first.push_back(tessera::ones({static_cast<int64_t>(i + 1)}));
  for (int i = 0; i < 7; ++i) shared.push_back(tessera::ones({16}));
  const auto call = [&](const Tensor& x) {
    return f(x, shared[0], shared[1], shared[2], shared[3], shared[4], shared[5], shared[6]);
  };
  for (const Tensor& x : first) call(x);
  size_t next = 0;
  return measure([&](size_t) {
    call(first[next]);
    if (++next == entries) next = 0;
  });
}

double by_tensors_64() {
  auto f = tessera::compile([](const std::vector<Tensor>& xs) { return tessera::cat(xs).sum({0}, true); },
                            {.dynamic = tessera::Dynamic::no});
  std::vector<Tensor> xs;
  for (int i = 0; i < 64; ++i) xs.push_back(tessera::ones({16}));
  return measure([&](size_t) { f(xs); });
}

using Figures = std::vector<std::pair<std::string, double>>;

std::string print(const Figures& figures, bool json) {
  std::string s;
  char text[64];
  for (const auto& [name, ns] : figures) {
    if (ns < 0) continue;  // left out
    std::snprintf(text, sizeof text, json ? "%s\"%s\": %.1f" : "%s%6s: %8.1f ns",
                  s.empty() ? ""
                  : json    ? ", "
                            : "\n  ",
                  name.c_str(), ns);
    s += text;
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      options.json = true;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      options.only = argv[++i];
    } else if (std::strcmp(argv[i], "--calls") == 0 && i + 1 < argc) {
      options.calls = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr,
                   "usage: bench-dispatch [--json] [--only FIGURE [--calls N]]\n"
                   "ns per call of a compiled function with nothing to compute.\n"
                   "  --only FIGURE  one figure: tensors/8, entries/1000\n"
                   "  --calls N      make N calls and time nothing (for instruction counts)\n"
                   "example: bench-dispatch --json\n");
      return std::strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }
  try {
    const tessera::Context context("null");
    const tessera::ContextScope scope(context);
    const auto figure = [](const std::string& name, auto&& f) {
      return options.only.empty() || options.only == name ? f() : -1.0;
    };
    const Figures tensors = {{"1", figure("tensors/1", by_tensors_1)},
                             {"8", figure("tensors/8", [] { return by_entries(1); })},
                             {"64", figure("tensors/64", by_tensors_64)}};
    Figures entries;
    for (const size_t n : {1, 8, 64, 1000})
      entries.emplace_back(std::to_string(n), figure("entries/" + std::to_string(n), [n] { return by_entries(n); }));
    if (options.json)
      std::printf("{\"schema\": \"tessera.bench.dispatch/1\", \"unit\": \"ns\", \"tensors\": {%s}, \"entries\": {%s}}\n",
                  print(tensors, true).c_str(), print(entries, true).c_str());
    else
      std::printf("tensors\n  %s\nentries (8 tensors)\n  %s\n", print(tensors, false).c_str(), print(entries, false).c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  return 0;
}
