// SPDX-License-Identifier: Apache-2.0
// Mixed precision: which operations change their types, that compiled code is guarded on it, and loss scaling.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

struct Small : nn::Module<Small> {
  nn::Linear fc1{4, 16}, fc2{16, 3};
  nn::LayerNorm norm{16};
  Small() {
    add("fc1", fc1);
    add("norm", norm);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) { return fc2(F::gelu(norm(fc1(x)))); }
};

}  // namespace

TEST_CASE("autocast narrows products, widens norms and losses, and leaves the rest") {
  const Tensor a = ones({2, 4}), b = ones({4, 3}), d = ones({4, 3}, f64);
  CHECK(a.matmul(b).dtype() == f32);
  {
    const Autocast on;
    const Tensor y = a.matmul(b);
    CHECK(y.dtype() == bf16);
    CHECK((y + 1.0).dtype() == bf16);
    CHECK(y.softmax(1).dtype() == f32);
    CHECK(F::layer_norm(y, {3}).dtype() == f32);
    CHECK(F::cross_entropy(y, zeros({2}, i64)).dtype() == f32);
    CHECK(a.to(f64).matmul(d).dtype() == f64);
    {
      const Autocast half(f16);
      CHECK(a.matmul(b).dtype() == f16);
      const Autocast off(bf16, false);
      CHECK(a.matmul(b).dtype() == f32);
    }
    CHECK(a.matmul(b).dtype() == bf16);
  }
  CHECK(a.matmul(b).dtype() == f32);
  CHECK_THROWS_WITH(Autocast(f64), Catch::Contains("TSR-F067"));
}

TEST_CASE("compiled code is guarded on autocast") {
  auto f = compile([](const Tensor& x, const Tensor& y) { return x.matmul(y); });
  const Tensor a = ones({2, 4}), b = ones({4, 3});
  CHECK(f(a, b).dtype() == f32);
  for (int i = 0; i < 3; ++i) {
    const Autocast on;
    CHECK(f(a, b).dtype() == bf16);
  }
  {
    const Autocast half(f16);
    CHECK(f(a, b).dtype() == f16);
  }
  CHECK(f(a, b).dtype() == f32);
  CHECK(entries(f.describe()) == 3);
  // Inside of a function it is part of what is recorded.
  auto inside = compile([](const Tensor& x, const Tensor& y) {
    const Autocast on;
    return x.matmul(y);
  });
  CHECK(inside(a, b).dtype() == bf16);
  CHECK(inside(a, b).dtype() == bf16);
  CHECK(entries(inside.describe()) == 1);
}

TEST_CASE("a step in mixed precision trains parameters of f32") {
  Generator g(5);
  const Tensor x = randn({64, 4}, f32, &g), y = x.argmax(1).clamp(0, 2);
  for (const DType narrow : {bf16, f16}) {
    manual_seed(3);
    Small model;
    optim::AdamW optimizer(model, {.lr = 0.02});
    optim::LossScaler scaler;
    auto step = compile([narrow](Small& m, optim::AdamW& o, optim::LossScaler& s, const Tensor& a, const Tensor& t) {
      Tensor loss;
      {
        const Autocast on(narrow);
        loss = F::cross_entropy(m(a), t);
      }
      std::vector<Tensor> gradients = grad(s.scale(loss), m);
      const Tensor finite = s.unscale(gradients);
      o.step(m, gradients, finite);
      return loss;
    });
    double first = 0, last = 0;
    for (int i = 0; i < 40; ++i) {
      last = step(model, optimizer, scaler, x, y).item<double>();
      if (i == 0) first = last;
    }
    CHECK(last < 0.5 * first);
    CHECK(model.fc1.weight.dtype() == f32);
    CHECK(entries(step.describe()) == 1);
  }
}

TEST_CASE("steps whose gradients overflow are skipped, and the scale follows") {
  manual_seed(3);
  Small model;
  optim::AdamW optimizer(model, {.lr = 0.02});
  optim::LossScaler scaler(1024, 2, 0.5, 3);
  auto step = compile([](Small& m, optim::AdamW& o, optim::LossScaler& s, const Tensor& x, const Tensor& factor) {
    std::vector<Tensor> gradients = grad(s.scale((m(x) * factor).sum()), m);
    const Tensor finite = s.unscale(gradients);
    o.step(m, gradients, finite);
    return finite;
  });
  const Tensor x = ones({2, 4}), good = ones({}), bad = full({}, INFINITY);
  const auto run = [&](const Tensor& factor) { return step(model, optimizer, scaler, x, factor).item<bool>(); };
  CHECK(run(good));
  const std::vector<float> before = model.fc1.weight.to_vector<float>();
  CHECK(!run(bad));
  CHECK(model.fc1.weight.to_vector<float>() == before);
  CHECK(optimizer.steps() == 1);
  CHECK(scaler.current() == 512);
  CHECK(run(good));
  CHECK(run(good));
  CHECK(scaler.current() == 512);
  CHECK(run(good));  // the third in a row
  CHECK(scaler.current() == 1024);
  CHECK(optimizer.steps() == 4);
  CHECK(entries(step.describe()) == 1);
  CHECK_THROWS_WITH(optim::LossScaler(0), Catch::Contains("TSR-F051"));
}
