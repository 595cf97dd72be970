// SPDX-License-Identifier: Apache-2.0
// Where compiled functions break, what runs when, and how to do without: each part prints what TESSERA_LOGS=graph_breaks says.
// docs/graph_breaks.md explains it.
#include <cstdio>
#include <cstdlib>
#include <tessera/tessera.hpp>

using namespace tessera;

namespace {

int host_runs = 0;

void part(const char* title) {
  reset();
  host_runs = 0;
  std::fprintf(stderr, "\n== %s\n", title);
}

// Newton's steps until the error is small: how many there are, data decides.
Tensor square_root(const Tensor& a) {
  ++host_runs;
  Tensor x = a;
  while (((x * x - a).abs() > 1e-3).any()) x = (x + a / x) / 2;
  return x;
}

Tensor square_root_in_one_graph(const Tensor& a) {
  ++host_runs;
  return while_loop([](const std::vector<Tensor>& s) { return std::vector<Tensor>{((s[0] * s[0] - s[1]).abs() > 1e-3).any()}; },
                    [](const std::vector<Tensor>& s) { return std::vector<Tensor>{(s[0] + s[1] / s[0]) / 2}; }, {a}, {a})[0];
}

Tensor clip_by_norm(const Tensor& gradient, double limit) {
  ++host_runs;
  const double norm = gradient.norm().item<double>();
  return norm > limit ? gradient * (limit / norm) : gradient;
}

}  // namespace

int main() {
  setenv("TESSERA_LOGS", "graph_breaks,recompiles", 0);

  part("a loop that data ends: a graph for what comes before it, for its first turn and for all others");
  {
    auto f = compile(square_root, {.name = "square_root", .args = {"a"}});
    for (const float a : {2.f, 9.f, 100.f, 2.f, 9.f, 100.f}) f(full({3}, a));
    std::fprintf(stderr, "host code ran %d times for 6 calls\n%s", host_runs, explain(f).str().c_str());
  }

  part("the same as one graph");
  {
    auto f = compile(square_root_in_one_graph, {.fullgraph = true, .name = "square_root", .args = {"a"}});
    for (const float a : {2.f, 9.f, 100.f, 2.f, 9.f, 100.f}) f(full({3}, a));
    std::fprintf(stderr, "host code ran %d times for 6 calls\n%s", host_runs, explain(f).str().c_str());
  }

  part("a number that is read is part of the way: another number, another continuation");
  {
    auto f = compile(clip_by_norm, {.name = "clip_by_norm", .args = {"gradient", "limit"}});
    for (const float g : {1.f, 2.f, 3.f, 1.f}) f(full({4}, g), 1.0);
    std::fprintf(stderr, "host code ran %d times for 4 calls\n", host_runs);
  }

  part("fullgraph");
  try {
    compile(clip_by_norm, {.fullgraph = true, .name = "clip_by_norm", .args = {"gradient", "limit"}})(ones({4}), 1.0);
  } catch (const UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  return 0;
}
