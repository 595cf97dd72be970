// SPDX-License-Identifier: Apache-2.0
// Training steps with symbolic sizes under a budget of memory: a call that would exceed it gets an entry of its own.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

using Weights = std::vector<Tensor>;

struct Model {
  const char* name;
  int weights;
  std::function<Tensor(const Weights&, const Tensor&)> forward;
};

const Model kModels[] = {
    {"layers", 8,
     [](const Weights& w, Tensor y) {
       for (const Tensor& v : w) y = F::gelu(y.matmul(v));
       return y;
     }},
    {"gated", 12,
     [](const Weights& w, Tensor y) {
       for (size_t i = 0; i + 2 < w.size(); i += 3) y = y + (F::gelu(y.matmul(w[i])) * y.matmul(w[i + 1])).matmul(w[i + 2]);
       return y;
     }},
    {"residual", 8,
     [](const Weights& w, Tensor y) {
       for (const Tensor& v : w) {
         const Tensor t = y.matmul(v).tanh();
         y = y + t * t;
       }
       return y;
     }},
};

constexpr int64_t kWidth = 48, kRows = 256;

auto step_of(const Model& m, const std::vector<std::string>& options) {
  return compile(
      [&m](const Weights& w, const Tensor& x) {
        const Tensor y = m.forward(w, x);
        return grad((y * y).sum(), w);
      },
      {.dynamic = Dynamic::yes, .options = options, .name = m.name, .args = {"w", "x"}});
}

using Gradients = std::vector<std::vector<double>>;
template <class F>
Gradients take(F& step, const Weights& w, const Tensor& x) {
  Gradients out;
  for (const Tensor& g : step(w, x)) out.push_back(g.to_vector<double>());
  return out;
}

auto with_budget(const Model& m, int64_t bytes) {
  return step_of(
      m, {"partitioner.name=budget", "partitioner.costs=predicted", "partitioner.budget_bytes=" + std::to_string(bytes)});
}

// That an impossible budget names.
int64_t smallest_peak(const Model& m, const Weights& w, const Tensor& x) {
  auto step = with_budget(m, 1);
  std::string what;
  try {
    step(w, x);
  } catch (const Error& e) {
    what = e.what();
  }
  const std::string before = "finds is ";
  const size_t at = what.find(before);
  REQUIRE(at != std::string::npos);
  return std::stoll(what.substr(at + before.size()));
}

}  // namespace

TEST_CASE("beyond the sizes up to which its plan keeps to a budget, a step has an entry of its own") {
  for (const Model& m : kModels) {
    INFO(m.name);
    Generator g(7);
    Weights w;
    for (int i = 0; i < m.weights; ++i) w.push_back(randn({kWidth, kWidth}, f32, &g) * 0.1);
    const Tensor x = randn({kRows, kWidth}, f32, &g), twice = randn({2 * kRows, kWidth}, f32, &g);
    auto all = step_of(m, {"partitioner.name=save_all"});
    const Gradients plain = take(all, w, x), plain_twice = take(all, w, twice);
    CHECK(entries(all.describe()) == 1);
    auto step = with_budget(m, smallest_peak(m, w, twice) * 11 / 10);
    CHECK(take(step, w, x) == plain);
    CHECK(entries(step.describe()) == 1);
    CHECK(take(step, w, twice) == plain_twice);
    CHECK(entries(step.describe()) == 2);
    // Neither size makes another one.
    CHECK(take(step, w, x) == plain);
    CHECK(take(step, w, twice) == plain_twice);
    CHECK(entries(step.describe()) == 2);
  }
}
