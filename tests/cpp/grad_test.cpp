// SPDX-License-Identifier: Apache-2.0
// Gradients and optimisers of the C++ frontend: what is recorded, what is refused, and training steps as one program.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

double distance(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }

struct TrainedMlp : nn::Module<TrainedMlp> {
  nn::Linear fc1{4, 8, true, f64}, fc2{8, 3, true, f64};
  nn::LayerNorm norm{8, 1e-5, f64};
  TrainedMlp() {
    add("fc1", fc1);
    add("norm", norm);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) { return fc2(F::gelu(norm(fc1(x)))); }
};

// d/dt of the loss when one element of a parameter moves.
double slope(const std::function<double()>& loss, Tensor& parameter, int64_t i) {
  const double h = 1e-6;
  double* p = parameter.data<double>() + i;
  const double at = *p;
  *p = at + h;
  const double above = loss();
  *p = at - h;
  const double below = loss();
  *p = at;
  return (above - below) / (2 * h);
}

}  // namespace

TEST_CASE("the gradient of a module's loss is its slope") {
  manual_seed(1);
  TrainedMlp model;
  Generator g(2);
  const Tensor x = randn({5, 4}, f64, &g), y = tensor(std::vector<int64_t>{0, 2, 1, 1, 0});
  auto gradients = compile([](TrainedMlp& m, const Tensor& a, const Tensor& t) { return grad(F::cross_entropy(m(a), t), m); });
  const std::vector<Tensor> found = gradients(model, x, y);
  const auto parameters = model.named_parameters();
  REQUIRE(found.size() == parameters.size());
  const auto loss = [&] { return F::cross_entropy(model.forward(x), y).item<double>(); };
  for (size_t k = 0; k < parameters.size(); ++k) {
    INFO(parameters[k].first);
    CHECK(found[k].sizes() == parameters[k].second->sizes());
    const std::vector<double> values = found[k].to_vector<double>();
    for (size_t i = 0; i < values.size(); i += 5)
      CHECK(values[i] == Approx(slope(loss, *parameters[k].second, static_cast<int64_t>(i))).margin(1e-8).epsilon(1e-6));
  }
}

TEST_CASE("gradients with respect to what has been computed, and of gradients") {
  const Tensor x = tensor(std::vector<double>{0.5, -1.5, 2}, {3});
  SECTION("an intermediate value: what leads to it does not count") {
    auto f = compile([](const Tensor& a) {
      const Tensor h = a * 3.0;
      const Tensor loss = (h * h * a).sum();
      return std::pair(grad(loss, h), grad(loss, a));
    });
    const auto [of_h, of_a] = f(x);
    CHECK(distance(of_h, x * x * 6.0) < 1e-12);
    CHECK(distance(of_a, x * x * 27.0) < 1e-12);
  }
  SECTION("two equal values are told apart") {
    auto f = compile([](const Tensor& a) {
      const Tensor h = a * 2.0, k = a * 2.0;
      return grad((h * h + k).sum(), std::vector<Tensor>{h, k}).at(1);
    });
    CHECK(distance(f(x), ones({3}, f64)) == 0);
  }
  SECTION("the second derivative") {
    auto f = compile([](const Tensor& a) { return grad(grad((a.sin() * a).sum(), a).sum(), a); });
    CHECK(distance(f(x), x.cos() * 2.0 - x * x.sin()) < 1e-12);
  }
  SECTION("stop_gradient") {
    auto f = compile([](const Tensor& a) { return grad((stop_gradient(a) * a).sum(), a); });
    CHECK(distance(f(x), x) == 0);
  }
  SECTION("what the output does not depend on has zeros") {
    auto f = compile([](const Tensor& a, const Tensor& b) { return grad(a.sum(), b); });
    CHECK(distance(f(x, x), zeros({3}, f64)) == 0);
  }
  SECTION("a tensor that the function closes over") {
    auto f = compile([w = x](const Tensor& a) { return grad((w * w * a).sum(), w); });
    CHECK(distance(f(x), x * x * 2.0) < 1e-12);
  }
}

TEST_CASE("functions of functions") {
  const Tensor x = tensor(std::vector<double>{0.5, -1.5, 2}, {3}), t = tensor(std::vector<double>{1, 2, -1}, {3});
  auto cube = [](const Tensor& a) { return a * a * a; };
  auto total = [](const Tensor& a) { return (a * a * a).sum(); };
  const auto [value, gradient] = compile([&](const Tensor& a) { return value_and_grad(total)(a); })(x);
  CHECK(value.item<double>() == Approx(0.125 - 3.375 + 8));
  CHECK(distance(gradient, x * x * 3.0) < 1e-12);
  CHECK(distance(compile([&](const Tensor& a) { return grad_of(total)(a); })(x), x * x * 3.0) < 1e-12);
  CHECK(distance(compile([&](const Tensor& a, const Tensor& u) { return vjp(cube, a, u).second; })(x, t), x * x * 3.0 * t) <
        1e-12);
  CHECK(distance(compile([&](const Tensor& a, const Tensor& u) { return jvp(cube, a, u).second; })(x, t), x * x * 3.0 * t) <
        1e-12);
}

TEST_CASE("gradients that cannot be are refused with their place") {
  const Tensor x = ones({3});
  CHECK_THROWS_WITH(grad(x.sum(), x), Catch::Contains("TSR-F049"));
  CHECK_THROWS_WITH(compile([](const Tensor& a) { return grad(a * 2.0, a); })(x),
                    Catch::Contains("args[0] without a seed: found 3, expected 1"));
  CHECK_THROWS_WITH(compile([](const Tensor& a) { return grad(a.sum(), a.to(i64)); })(x), Catch::Contains("has the dtype i64"));
  CHECK_THROWS_WITH(compile([](const Tensor& a) { return grad(a.sum(), Tensor()); })(x), Catch::Contains("TSR-F050"));
  CHECK_THROWS_WITH(compile([](const Tensor& a) {
                      return grad({a.sum()}, {a}, {a.sum(), a.sum()}).at(0);
                    })(x),
                    Catch::Contains("2 seeds for 1 outputs"));
  CHECK_THROWS_WITH(compile([](const Tensor& a) { return grad(op("digamma", {a}).sum(), a); })(x),
                    Catch::Contains("TSR-A001") && Catch::Contains("digamma"));
}

TEST_CASE("a training step with its optimiser is one program that lowers the loss and never compiles again") {
  Generator g(5);
  const Tensor x = randn({32, 4}, f64, &g);
  const Tensor y = x.argmax(1).clamp(0, 2);
  const auto train = [&](auto make) {
    manual_seed(3);
    TrainedMlp model;
    auto optimizer = make(model);
    using O = std::remove_reference_t<decltype(*optimizer)>;
    auto step = compile([](TrainedMlp& m, O& o, const Tensor& a, const Tensor& t) {
      const Tensor loss = F::cross_entropy(m(a), t);
      std::vector<Tensor> gradients = grad(loss, m);
      optim::clip_grad_norm(gradients, 1.0);
      o.step(m, gradients);
      return loss;
    });
    double first = 0, last = 0;
    for (int i = 0; i < 40; ++i) {
      if (i == 20) optimizer->set_lr(optimizer->lr() / 2);
      last = step(model, *optimizer, x, y).template item<double>();
      if (i == 0) first = last;
    }
    CHECK(optimizer->steps() == 40);
    CHECK(last < 0.7 * first);
    CHECK(entries(step.describe()) == 1);
  };
  SECTION("SGD") {
    train([](TrainedMlp& m) {
      return std::make_unique<optim::SGD>(m, optim::SgdOptions{.lr = 0.3, .momentum = 0.9, .nesterov = true});
    });
  }
  SECTION("Adam") {
    train([](TrainedMlp& m) { return std::make_unique<optim::Adam>(m, optim::AdamOptions{.lr = 0.03}); });
  }
  SECTION("AdamW") {
    train(
        [](TrainedMlp& m) { return std::make_unique<optim::AdamW>(m, optim::AdamOptions{.lr = 0.03, .weight_decay = 0.01}); });
  }
  SECTION("Lion") {
    train([](TrainedMlp& m) { return std::make_unique<optim::Lion>(m, optim::LionOptions{.lr = 0.01}); });
  }
}

TEST_CASE("optimisers refuse what makes no sense") {
  TrainedMlp model;
  CHECK_THROWS_WITH(optim::SGD(model, {.lr = -1}), Catch::Contains("TSR-F051") && Catch::Contains("learning rate"));
  CHECK_THROWS_WITH(optim::Adam(model, {.beta1 = 1}), Catch::Contains("beta1"));
  CHECK_THROWS_WITH(optim::SGD(model, {.groups = {{"fc7", 0.1}}}), Catch::Contains("fits no parameter"));
}

TEST_CASE("a checkpointed block gives the same bits, and is computed again") {
  Generator g(4);
  const Tensor x = randn({6, 8}, f32, &g), w = randn({8, 8}, f32, &g);
  const auto block = [](const Tensor& h, const Tensor& m) { return F::gelu(h.matmul(m)).tanh(); };
  auto plain =
      compile([&](const Tensor& a, const Tensor& m) { return grad(block(block(a, m), m).sum(), m); }, {.backend = "eager"});
  auto checked =
      compile([&](const Tensor& a, const Tensor& m) { return grad(checkpoint(block, checkpoint(block, a, m), m).sum(), m); },
              {.backend = "eager"});  // bits are a backend's own
  CHECK(distance(plain(x, w), checked(x, w)) == 0);
  CHECK(distance(checkpoint(block, x, w), block(x, w)) == 0);
}

TEST_CASE("a differentiable function leaves what its backward half needs, once") {
  Generator g(5);
  const Tensor x = randn({6, 8}, f32, &g), w = randn({8, 8}, f32, &g), dy = randn({6, 8}, f32, &g);
  const auto f = [](const Tensor& a, const Tensor& m) { return F::gelu(a.matmul(m)); };
  auto layer = differentiable(f);
  auto whole = compile([&](const Tensor& a, const Tensor& m, const Tensor& d) {
    return vjp([&](const Tensor& at) { return f(at, m); }, a, d).second;
  });
  for (int round = 0; round < 3; ++round) {
    auto [y, back] = layer(x, w);
    CHECK(distance(y, f(x, w)) < 1e-5);
    CHECK(distance(back(dy), whole(x, w, dy)) == 0);
    try {
      (void)back(dy);
      FAIL("no error");
    } catch (const Error& e) {
      CHECK(std::string(e.code()) == "TSR-A020");
    }
  }
  // Two calls before either goes back, in the other order.
  auto [y1, back1] = layer(x, w);
  auto [y2, back2] = layer(x * 2.0, w);
  const Tensor d2 = back2(dy), d1 = back1(dy);
  CHECK(distance(d1, whole(x, w, dy)) == 0);
  CHECK(distance(d2, whole(x * 2.0, w, dy)) == 0);
  // A list of tensors, and another shape.
  auto sum = differentiable([](const std::vector<Tensor>& ts) { return ts[0].matmul(ts[1]).sin(); });
  auto [z, back] = sum({x, w});
  const std::vector<Tensor> both = back(dy);
  REQUIRE(both.size() == 2);
  CHECK(both[0].sizes() == x.sizes());
  CHECK(both[1].sizes() == w.sizes());
}
