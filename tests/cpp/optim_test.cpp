// SPDX-License-Identifier: Apache-2.0
// Optimisers beyond one step: rates by group, schedules and accumulation, and how often each of them compiles.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

struct TwoLayers : nn::Module<TwoLayers> {
  nn::Linear fc1{4, 8, true, f64}, fc2{8, 3, true, f64};
  TwoLayers() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) { return fc2(F::gelu(fc1(x))); }
};

template <class O>
auto training_step() {
  return compile([](TwoLayers& m, O& o, const Tensor& x, const Tensor& y) {
    const Tensor loss = F::cross_entropy(m(x), y);
    o.step(m, grad(loss, m));
    return loss;
  });
}

struct Data {
  Tensor x, y;
  Data() {
    Generator g(5);
    x = randn({32, 4}, f64, &g);
    y = x.argmax(1).clamp(0, 2);
  }
};

}  // namespace

TEST_CASE("rates by group follow a schedule without another compile") {
  const Data d;
  manual_seed(3);
  TwoLayers model;
  optim::SGD optimizer(model, {.lr = 0.5, .groups = {{"fc1", 0.5}}});
  auto step = training_step<optim::SGD>();
  const auto moved = [&](double lr, double scale) {  // by how much the two weights move, per unit of their gradient
    auto gradients = compile([](TwoLayers& m, const Tensor& x, const Tensor& y) { return grad(F::cross_entropy(m(x), y), m); });
    const std::vector<Tensor> g = gradients(model, d.x, d.y);
    const Tensor before1 = model.fc1.weight.clone(), before2 = model.fc2.weight.clone();
    step(model, optimizer, d.x, d.y);
    CHECK(distance(model.fc1.weight, before1 - g[0] * (lr * scale)) < 1e-15);
    CHECK(distance(model.fc2.weight, before2 - g[2] * lr) < 1e-15);
  };
  moved(0.5, 0.5);
  optimizer.set_lr_scale("fc1", 0);
  moved(0.5, 0);
  for (int64_t i = 0; i < 10; ++i) {
    const double lr = optim::warmup_linear(i, 3, 10, 0.1, 0.01);
    optimizer.set_lr(lr);
    optimizer.set_lr_scale("fc1", 2.0 / static_cast<double>(i + 1));
    moved(lr, 2.0 / static_cast<double>(i + 1));
  }
  CHECK(entries(step.describe()) == 1);
  CHECK_THROWS_WITH(optimizer.set_lr_scale("fc7", 1), Catch::Contains("TSR-F051") && Catch::Contains("no group 'fc7'"));
  CHECK_THROWS_WITH(optimizer.set_lr_scale("fc1", -1), Catch::Contains("lr_scale"));
}

TEST_CASE("a step that is not applied leaves every bit of parameters and state") {
  const Data d;
  manual_seed(3);
  TwoLayers model;
  optim::AdamW optimizer(model, {.lr = 0.1});
  auto step = compile([](TwoLayers& m, optim::AdamW& o, const Tensor& x, const Tensor& y, const Tensor& apply) {
    const Tensor loss = F::cross_entropy(m(x), y);
    std::vector<Tensor> gradients = grad(loss, m);
    for (Tensor& g : gradients) g = where(apply, g, g * NAN);
    o.step(m, gradients, apply);
    return loss;
  });
  const Tensor yes = ones({}, boolean), no = zeros({}, boolean);
  step(model, optimizer, d.x, d.y, yes);
  const auto model_before = model.state_dict(), state_before = optimizer.state_dict();
  step(model, optimizer, d.x, d.y, no);
  for (const auto& [before, now] :
       {std::pair(model_before, model.state_dict()), std::pair(state_before, optimizer.state_dict())})
    for (const auto& [name, t] : before) {
      INFO(name);
      CHECK(distance(t, now.at(name)) == 0);
    }
  CHECK(optimizer.steps() == 1);
  step(model, optimizer, d.x, d.y, yes);
  CHECK(optimizer.steps() == 2);
  CHECK(entries(step.describe()) == 1);
}

TEST_CASE("gradients accumulated over micro-batches are those of the batch") {
  const Data d;
  const auto run = [&](int64_t parts) {
    manual_seed(3);
    auto model = std::make_unique<TwoLayers>();
    optim::SGD optimizer(*model, {.lr = 0.5, .momentum = 0.9});
    optim::Accumulator sums(*model);
    auto step =
        compile([parts](TwoLayers& m, optim::SGD& o, optim::Accumulator& a, const Tensor& x, const Tensor& y, bool last) {
          a.add(grad(F::cross_entropy(m(x), y), m));
          if (last) o.step(m, a.take(parts));
          return x.sum();
        });
    for (int i = 0; i < 3; ++i)
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t rows = 32 / parts;
        step(*model, optimizer, sums, d.x.narrow(0, p * rows, rows).contiguous(), d.y.narrow(0, p * rows, rows).contiguous(),
             p + 1 == parts);
      }
    CHECK(entries(step.describe()) == (parts == 1 ? 1 : 2));
    CHECK(optimizer.steps() == 3);
    return model;
  };
  const auto whole = run(1), quarters = run(4);
  CHECK(distance(whole->fc1.weight, quarters->fc1.weight) < 1e-12);
  CHECK(distance(whole->fc2.bias, quarters->fc2.bias) < 1e-12);
}

TEST_CASE("Muon moves matrices by orthogonal steps and the rest by Adam's") {
  const Data d;
  manual_seed(3);
  TwoLayers model;
  optim::Muon optimizer(model, {.lr = 0.02, .weight_decay = 0, .adam_prefixes = {"fc2"}});
  auto step = training_step<optim::Muon>();
  const Tensor before = model.fc1.weight.clone();
  const double first = step(model, optimizer, d.x, d.y).item<double>();
  const Tensor moved = (before - model.fc1.weight) / (0.02 * std::sqrt(2.0));  // [8, 4]: sqrt(8 / 4) times the rate
  const std::vector<double> gram = moved.t().matmul(moved).to_vector<double>();
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const double found = gram[static_cast<size_t>(4 * i + j)];
      if (i == j)
        CHECK((found > 0.4 && found < 1.6));
      else
        CHECK(std::abs(found) < 0.4);
    }
  CHECK(optimizer.state_dict().count("fc1.weight.momentum") == 1);
  CHECK(optimizer.state_dict().count("fc1.bias.exp_avg") == 1);
  CHECK(optimizer.state_dict().count("fc2.weight.exp_avg_sq") == 1);
  double last = 0;
  for (int i = 0; i < 60; ++i) {
    optimizer.set_lr(optim::warmup_linear(i, 5, 60, 0.1));
    last = step(model, optimizer, d.x, d.y).item<double>();
  }
  CHECK(last < 0.7 * first);
  CHECK(entries(step.describe()) == 1);
  CHECK_THROWS_WITH(optim::Muon(model, {.steps = 0}), Catch::Contains("TSR-F051") && Catch::Contains("number of steps"));
}

TEST_CASE("schedules") {
  CHECK(optim::warmup_linear(0, 4, 10, 1) == Approx(0.25));
  CHECK(optim::warmup_linear(4, 4, 10, 1) == Approx(1));
  CHECK(optim::warmup_linear(7, 4, 10, 1, 0.5) == Approx(0.75));
  CHECK(optim::warmup_linear(10, 4, 10, 1, 0.5) == 0.5);
  CHECK(optim::warmup_cosine(7, 4, 10, 1) == Approx(0.5));
  CHECK(optim::inverse_sqrt(3, 4, 1) == Approx(1));
  CHECK(optim::inverse_sqrt(15, 4, 1) == Approx(0.5));
  CHECK(optim::exponential_decay(2, 1, 0.5) == Approx(0.25));
  std::vector<Tensor> g{tensor(std::vector<double>{-3, 0.5, 2})};
  optim::clip_grad_value(g, 1);
  CHECK(distance(g[0], tensor(std::vector<double>{-1, 0.5, 1})) == 0);
}
