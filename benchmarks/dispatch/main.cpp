// SPDX-License-Identifier: Apache-2.0
// The cost of calling a compiled function that has nothing to compute: flattening, guards, dispatch, one kernel launch on the
// null backend, and an f32[1] output that the caller releases. Through tessera::compile, as a program would call it.
//
//   tensors: by the number of argument tensors, one cached entry entries: by the number of cached entries, called round robin:
//   8 tensors, static shapes; entries differ in the first tensor's
//            size only, the other seven tensors are shared
//   training: 8 tensors that a function makes anew from a ninth, on the eager backend: returned; put in the place of the old
//            ones, donated; and returned for tensors that require gradients, where gradients are off and where it is recorded
//
// Every argument is used by the graph, hence guarded. All figures are taken side by side: round after round runs a short batch
// of each, every batch after a lap over its entries that is not timed, and a figure is the lowest decile of its batches. What
// else the machine does then slows some rounds of every figure instead of all rounds of one, and the slow ones do not count.
// instructions.sh counts the instructions of a call instead: a number that another program on the machine does not change.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
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

// One figure: makes `n` calls, going on where the last batch ended; returns their nanoseconds in all.
struct Case {
  std::string group, name;
  size_t lap;  // calls after which it begins anew
  std::function<double(size_t n)> batch;
  size_t calls = 0;                // of a batch
  std::vector<double> times = {};  // per call, by batch
};

template <class F>
double timed(size_t n, F&& call) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  for (size_t i = 0; i < n; ++i) call();
  return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
}

const std::vector<std::string> kManyEntries = {"guards.recompile_limit=2000", "guards.accumulated_recompile_limit=100000"};

Case by_tensors_1() {
  auto f = tessera::compile([](const Tensor& a) { return gather_up(a); }, {.dynamic = tessera::Dynamic::no});
  const Tensor a = tessera::ones({16});
  return {"tensors", "1", 1, [f, a](size_t n) { return timed(n, [&] { f(a); }); }};
}

Case by_tensors_64() {
  auto f = tessera::compile([](const std::vector<Tensor>& xs) { return tessera::cat(xs).sum({0}, true); },
                            {.dynamic = tessera::Dynamic::no});
  std::vector<Tensor> xs;
  for (int i = 0; i < 64; ++i) xs.push_back(tessera::ones({16}));
  return {"tensors", "64", 1, [f, xs](size_t n) { return timed(n, [&] { f(xs); }); }};
}

Case by_entries(const char* group, const char* name, size_t entries) {
  auto f = tessera::compile([](const Tensor& a, const Tensor& b, const Tensor& c, const Tensor& d, const Tensor& e,
                               const Tensor& g, const Tensor& h, const Tensor& i) { return gather_up(a, b, c, d, e, g, h, i); },
                            {.dynamic = tessera::Dynamic::no, .options = kManyEntries});
  std::vector<Tensor> first, s;
  for (size_t i = 0; i < entries; ++i) first.push_back(tessera::ones({static_cast<int64_t>(i + 1)}));
  for (int i = 0; i < 7; ++i) s.push_back(tessera::ones({16}));
  size_t next = 0;
  const auto batch = [f, first, s, next](size_t n) mutable {
    return timed(n, [&] {
      f(first[next], s[0], s[1], s[2], s[3], s[4], s[5], s[6]);
      if (++next == first.size()) next = 0;
    });
  };
  return {group, name, entries, batch};
}

enum class Training { returned, replaced, unrecorded, recorded };

// Eight small updates, as a step of an optimiser makes them.
Case by_training(const char* name, Training how) {
  const tessera::CompileOptions options{.dynamic = tessera::Dynamic::no, .context = tessera::Context("eager")};
  std::vector<Tensor> w;
  for (int i = 0; i < 8; ++i) w.push_back(tessera::ones({16}));
  if (how == Training::unrecorded || how == Training::recorded)
    for (Tensor& t : w) t.requires_grad_();
  const Tensor g = tessera::zeros({16});
  if (how == Training::replaced) {
    auto f = tessera::compile(
        [](std::vector<Tensor>& all, const Tensor& by) {
          for (Tensor& t : all) t = t - by;
          return by;
        },
        options);
    return {"training", name, 1, [f, w, g](size_t n) mutable { return timed(n, [&] { f(w, g); }); }};
  }
  auto f = tessera::compile(
      [](const std::vector<Tensor>& all, const Tensor& by) {
        std::vector<Tensor> out;
        for (const Tensor& t : all) out.push_back(t - by);
        return out;
      },
      options);
  return {"training", name, 1, [f, w, g, how](size_t n) {
            std::optional<tessera::NoGradGuard> off;
            if (how == Training::unrecorded) off.emplace();
            return timed(n, [&] { f(w, g); });
          }};
}

const std::vector<std::pair<std::string, Case (*)()>> kFigures = {
    {"tensors/1", by_tensors_1},
    {"tensors/8", [] { return by_entries("tensors", "8", 1); }},
    {"tensors/64", by_tensors_64},
    {"entries/1", [] { return by_entries("entries", "1", 1); }},
    {"entries/8", [] { return by_entries("entries", "8", 8); }},
    {"entries/64", [] { return by_entries("entries", "64", 64); }},
    {"entries/1000", [] { return by_entries("entries", "1000", 1000); }},
    {"training/returned", [] { return by_training("returned", Training::returned); }},
    {"training/replaced", [] { return by_training("replaced", Training::replaced); }},
    {"training/unrecorded", [] { return by_training("unrecorded", Training::unrecorded); }},
    {"training/recorded", [] { return by_training("recorded", Training::recorded); }},
};

void measure(std::vector<Case>& cases) {
  constexpr int kRounds = 400;
  constexpr double kBatch = 2e5;  // nanoseconds, at least
  for (Case& c : cases) {
    c.batch(c.lap);  // compiles
    c.batch(std::max<size_t>(c.lap, 1000));
    for (c.calls = c.lap; c.batch(c.calls) < kBatch;) c.calls *= 2;
  }
  for (int round = 0; round < kRounds; ++round)
    for (Case& c : cases) {
      c.batch(std::max<size_t>(c.lap, 100));
      c.times.push_back(c.batch(c.calls) / static_cast<double>(c.calls));
    }
}

double lowest_decile(std::vector<double> times) {
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10);
  std::nth_element(times.begin(), at, times.end());
  return *at;
}

std::string print(const std::vector<Case>& cases, const std::string& group, bool json) {
  std::string s;
  char text[64];
  for (const Case& c : cases) {
    if (c.group != group) continue;
    std::snprintf(text, sizeof text, json ? "%s\"%s\": %.1f" : "%s%10s: %8.1f ns",
                  s.empty() ? ""
                  : json    ? ", "
                            : "\n  ",
                  c.name.c_str(), lowest_decile(c.times));
    s += text;
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  bool json = false;
  std::string only;
  size_t calls = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      json = true;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else if (std::strcmp(argv[i], "--calls") == 0 && i + 1 < argc) {
      calls = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(stderr,
                   "usage: bench-dispatch [--json] [--only FIGURE [--calls N]]\n"
                   "ns per call of a compiled function with nothing to compute: the lowest decile of 400 batches per figure,\n"
                   "each of at least 0.2 ms, taken in turns with those of the other figures.\n"
                   "  --only FIGURE  one figure: tensors/8, entries/1000\n"
                   "  --calls N      make N calls and time nothing (for instruction counts)\n"
                   "example: bench-dispatch --json\n");
      return std::strcmp(argv[i], "--help") == 0 ? 0 : 2;
    }
  }
  try {
    const tessera::Context context("null");
    const tessera::ContextScope scope(context);
    std::vector<Case> cases;
    for (const auto& [name, make] : kFigures)
      if (only.empty() || only == name) cases.push_back(make());
    if (cases.empty()) {
      std::fprintf(stderr, "bench-dispatch: there is no figure '%s'\n", only.c_str());
      return 2;
    }
    if (calls > 0) {
      for (Case& c : cases) c.batch(calls);
      return 0;
    }
    measure(cases);
    const std::string tensors = print(cases, "tensors", json), entries = print(cases, "entries", json),
                      training = print(cases, "training", json);
    if (json)
      std::printf(
          "{\"schema\": \"tessera.bench.dispatch/1\", \"unit\": \"ns\", \"tensors\": {%s}, \"entries\": {%s}, \"training\": "
          "{%s}}\n",
          tensors.c_str(), entries.c_str(), training.c_str());
    else
      std::printf("tensors\n  %s\nentries (8 tensors)\n  %s\ntraining (8 tensors and one)\n  %s\n", tensors.c_str(),
                  entries.c_str(), training.c_str());
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  return 0;
}
