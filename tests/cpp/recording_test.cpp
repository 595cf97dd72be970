// SPDX-License-Identifier: Apache-2.0
// Tensor::backward: results of compiled functions know what they were computed from.
#include <catch2/catch.hpp>
#include <string>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {

double gap(const Tensor& a, const Tensor& b) { return (a.detach() - b.detach()).abs().max().item<double>(); }

struct Net : nn::Module<Net> {
  nn::Linear fc1{4, 8, true, f64}, fc2{8, 3, true, f64};
  Net() {
    add("fc1", fc1);
    add("fc2", fc2);
  }
  Tensor forward(const Tensor& x) { return fc2(F::gelu(fc1(x))); }
};

}  // namespace

TEST_CASE("backward adds to the gradients of what requires them") {
  Generator g(5);
  Tensor x = randn({6, 8}, f64, &g), w = randn({8, 8}, f64, &g);
  const Tensor dy = randn({6, 8}, f64, &g);
  const auto layer = [](const Tensor& a, const Tensor& m) { return F::gelu(a.matmul(m)); };
  auto f = compile(layer);
  CHECK(!f(x, w).requires_grad());
  w.requires_grad_();
  const Tensor y = f(x, w);
  CHECK(y.requires_grad());
  CHECK(!w.grad().defined());
  y.backward(dy);
  auto expected = compile([&](const Tensor& a, const Tensor& m, const Tensor& d) {
    return vjp([&](const Tensor& at) { return layer(a, at); }, m, d).second;
  });
  const Tensor once = expected(x, w.detach(), dy);
  CHECK(gap(w.grad(), once) == 0);
  CHECK(!x.grad().defined());
  f(x, w).backward(dy);
  CHECK(gap(w.grad(), once * 2.0) < 1e-12);
  w.zero_grad();
  CHECK(!w.grad().defined());
  x.requires_grad_();
  f(x, w).backward(dy);
  CHECK(x.grad().sizes() == x.sizes());
  CHECK(gap(w.grad(), once) == 0);
  CHECK(entries(f.describe()) == 1);  // calls that record are compiled apart from those that do not
}

TEST_CASE("gradients go through one call after the other, and add up where two use one tensor") {
  const Tensor at = tensor(std::vector<double>{0.5, -1.5, 2}, {3});
  Tensor x = at.clone().requires_grad_();
  auto square = compile([](const Tensor& a) { return a * a; });
  auto combine = compile([](const Tensor& a, const Tensor& b) { return (a * b).sum(); });
  const Tensor y = square(x), z = square(y);
  combine(y, z).backward();  // x^2 x^4
  CHECK(gap(x.grad(), at.pow(5.0) * 6.0) < 1e-12);
  // A result that nothing uses counts as zero.
  auto two = compile([](const Tensor& a) { return std::pair(a * 2.0, a * 3.0); });
  x.zero_grad();
  const auto [first, second] = two(x);
  second.backward(ones({3}, f64));
  CHECK(gap(x.grad(), full({3}, 3.0, f64)) == 0);
  // An input that the result does not depend on has zeros.
  Tensor unused = at.clone().requires_grad_();
  auto left = compile([](const Tensor& a, const Tensor&) { return a.sum(); });
  left(x, unused).backward();
  CHECK(gap(unused.grad(), zeros({3}, f64)) == 0);
}

TEST_CASE("a training loop of separate calls") {
  Generator g(5);
  const Tensor x = randn({32, 4}, f64, &g), y = x.argmax(1).clamp(0, 2);
  const auto train = [&](bool separate) {
    manual_seed(3);
    auto model = std::make_unique<Net>();
    optim::AdamW optimizer(*model, {.lr = 0.03});
    auto loss = compile([](Net& m, const Tensor& a, const Tensor& t) { return F::cross_entropy(m(a), t); });
    auto update = compile([](Net& m, optim::AdamW& o, const std::vector<Tensor>& gradients) { o.step(m, gradients); });
    auto whole = compile([](Net& m, optim::AdamW& o, const Tensor& a, const Tensor& t) {
      const Tensor l = F::cross_entropy(m(a), t);
      o.step(m, grad(l, m));
      return l;
    });
    if (separate) model->requires_grad_();
    for (int i = 0; i < 5; ++i) {
      if (!separate) {
        whole(*model, optimizer, x, y);
        continue;
      }
      loss(*model, x, y).backward();
      update(*model, optimizer, model->gradients());
      CHECK(model->fc1.weight.requires_grad());    // goes on, in the tensor that has replaced it
      CHECK(!model->fc1.weight.grad().defined());  // which has no gradient yet
    }
    return model;
  };
  const auto one = train(false), two = train(true);
  CHECK(gap(one->fc1.weight, two->fc1.weight) < 1e-12);
  CHECK(gap(one->fc2.bias, two->fc2.bias) < 1e-12);
}

TEST_CASE("nothing is recorded where gradients are off") {
  Tensor x = ones({3}).requires_grad_();
  auto f = compile([](const Tensor& a) { return (a * 2.0).sum(); });
  {
    const NoGradGuard off;
    CHECK(!f(x).requires_grad());
  }
  CHECK(f(x).requires_grad());
  // Inside of a function: what is computed there is a constant.
  auto half = compile([](const Tensor& a) {
    Tensor factor;
    {
      const NoGradGuard off;
      factor = a * 3.0;
    }
    return (factor * a).sum();
  });
  half(x).backward();
  CHECK(gap(x.grad(), full({3}, 3.0)) == 0);
  auto inside = compile([](const Tensor& a) {
    const NoGradGuard off;
    return a * 3.0;
  });
  Tensor z = zeros({3}).requires_grad_();
  inside(z).backward(ones({3}));
  CHECK(gap(z.grad(), zeros({3})) == 0);
}

TEST_CASE("training and evaluation are programs of their own, with the reason") {
  struct Noisy : nn::Module<Noisy> {
    nn::Linear fc{4, 4};
    Noisy() { add("fc", fc); }
    Tensor forward(const Tensor& x, Generator& g) { return F::dropout(fc(x), 0.5, is_training(), &g); }
  } net;
  auto f = compile([](Noisy& m, const Tensor& x, Generator& g) { return m.forward(x, g).sum(); }, {.args = {"net", "x", "g"}});
  Generator g(1);
  net.requires_grad_();
  const Tensor x = ones({2, 4});
  f(net, x, g).backward();
  net.eval();
  {
    const NoGradGuard off;
    f(net, x, g);
    net.train();
    f(net, x, g);
  }
  const std::string description = f.describe();
  CHECK(entries(description) == 2);
  CHECK(description.find("net.training") != std::string::npos);
}

TEST_CASE("misuse of backward is named") {
  Tensor x = ones({3}).requires_grad_();
  auto f = compile([](const Tensor& a) { return a * 2.0; });
  auto total = compile([](const Tensor& a) { return a.sum(); });
  const Tensor y = f(x);
  CHECK_THROWS_WITH(y.backward(), Catch::Contains("TSR-F050") && Catch::Contains("3 elements without a seed"));
  CHECK_THROWS_WITH(y.backward(ones({4})), Catch::Contains("TSR-F050"));
  CHECK_THROWS_WITH(y + 1.0, Catch::Contains("TSR-F064") && Catch::Contains("'add'"));
  CHECK_THROWS_WITH(x.backward(), Catch::Contains("TSR-F063"));
  CHECK_THROWS_WITH(y.detach().backward(ones({3})), Catch::Contains("TSR-F063"));
  CHECK_THROWS_WITH(y[0].backward(), Catch::Contains("TSR-F06"));
  const Tensor loss = total(y);
  loss.backward();
  CHECK_THROWS_WITH(loss.backward(), Catch::Contains("TSR-A020"));
  CHECK_THROWS_WITH(y.backward(ones({3})), Catch::Contains("TSR-A020"));
  CHECK_THROWS_WITH(ones({3}).to(i64).requires_grad_(), Catch::Contains("TSR-F050"));
  auto integers = compile([](const Tensor& a) { return a.argmax(0); });
  CHECK_THROWS_WITH(integers(x), Catch::Contains("TSR-F052") && Catch::Contains("no floating-point tensor"));
  auto reads = compile([](const Tensor& a) { return a * a.sum().item<float>(); });
  CHECK_THROWS_WITH(reads(x), Catch::Contains("item<float>()"));
  CHECK_THROWS_WITH(differentiable([](const Tensor& a) { return a * a.sum().item<float>(); })(ones({3})),
                    Catch::Contains("item<float>()"));
}

TEST_CASE("what a recorded call keeps is released with its results") {
  auto f = compile([](const Tensor& a) { return a.exp().exp(); });
  const auto kept = [] { return tsr_get_api(TSR_ABI_MAJOR)->memory_in_use(0); };
  Tensor x = zeros({1000}).requires_grad_();
  f(f(x)).detach();
  const int64_t before = kept();
  for (int i = 0; i < 20; ++i) {
    Tensor y = f(x);
    for (int k = 0; k < 3; ++k) y = f(y);
  }
  CHECK(kept() == before);
  CHECK(x.requires_grad());
}

TEST_CASE("custom gradients") {
  using Tensors = std::vector<Tensor>;
  const Tensor x = tensor(std::vector<double>{0.5, -1.5, 2}, {3}), d = tensor(std::vector<double>{1, -3, 0.5}, {3});
  SECTION("take the place of the function's own") {
    auto clipped = custom_gradient(
        [](const Tensors& in) {
          return WithSaved{{in[0] * in[0]}, {in[0]}};
        },
        [](const Tensors& saved, const Tensors& dy) { return Tensors{(saved[0] * dy[0] * 2.0).clamp(-1.0, 1.0)}; });
    auto g = compile(
        [&](const Tensor& a, const Tensor& t) { return vjp([&](const Tensor& at) { return clipped({at})[0]; }, a, t); });
    const auto [y, dx] = g(x, d);
    CHECK(gap(y, x * x) == 0);
    CHECK(gap(dx, (x * d * 2.0).clamp(-1.0, 1.0)) == 0);
    CHECK(gap(clipped({x})[0], x * x) == 0);                                               // at once
    CHECK(gap(compile([&](const Tensor& a) { return clipped({a})[0]; })(x), x * x) == 0);  // nobody differentiates
    Tensor leaf = x.clone().requires_grad_();
    compile([&](const Tensor& a) { return clipped({a})[0]; })(leaf).backward(d);
    CHECK(gap(leaf.grad(), (x * d * 2.0).clamp(-1.0, 1.0)) == 0);
  }
  SECTION("of several inputs, one of them of integers, and of one result that nothing depends on") {
    auto pick = custom_gradient(
        [](const Tensors& in) {
          return WithSaved{{in[0].index_select(0, in[1]), in[2] * 2.0}, {in[1], in[0]}};
        },
        [](const Tensors& saved, const Tensors& dy) {
          return Tensors{zeros_like(saved[1]).scatter_add(0, saved[0], dy[0] * 10.0), dy[1] + 7.0};
        });
    auto g = compile([&](const Tensor& a, const Tensor& i, const Tensor& b) {
      return grad(pick({a, i, b})[0].sum(), Tensors{a, b});
    });
    const Tensors out = g(x, tensor(std::vector<int64_t>{2, 2, 0}), x);
    CHECK(gap(out[0], tensor(std::vector<double>{10, 0, 20})) == 0);
    CHECK(gap(out[1], full({3}, 7.0, f64)) == 0);
  }
  SECTION("are differentiated again") {
    auto cube = custom_gradient(
        [](const Tensors& in) {
          return WithSaved{{in[0] * in[0] * in[0]}, {in[0]}};
        },
        [](const Tensors& s, const Tensors& dy) { return Tensors{s[0] * s[0] * 3.0 * dy[0]}; });
    auto g = compile(
        [&](const Tensor& a, const Tensor& t) { return grad(grad(cube({a})[0].sum(), a).sum(), a) * t + cube({a})[0]; });
    CHECK(gap(g(x, d), x * 6.0 * d + x * x * x) < 1e-12);
  }
  SECTION("that do not fit are refused") {
    const auto run = [&](auto backward) {
      auto f = custom_gradient([](const Tensors& in) { return WithSaved{{in[0] * 2.0}, {}}; }, backward);
      compile([&](const Tensor& a) { return grad(f({a})[0].sum(), a); })(x);
    };
    CHECK_THROWS_WITH(run([](const Tensors&, const Tensors&) { return Tensors{}; }),
                      Catch::Contains("TSR-F059") && Catch::Contains("returns 0 tensors"));
    CHECK_THROWS_WITH(run([](const Tensors&, const Tensors& dy) { return Tensors{dy[0].sum()}; }), Catch::Contains("TSR-F059"));
    CHECK_THROWS_WITH(run([](const Tensors&, const Tensors& dy) { return Tensors{dy[0].to(f32)}; }),
                      Catch::Contains("TSR-F059"));
    CHECK_THROWS_WITH(compile([&](const Tensor& a, const Tensor& b) {
                        auto f = custom_gradient(
                            [](const Tensors& in) {
                              return WithSaved{{in[0] * 2.0}, {}};
                            },
                            [&](const Tensors&, const Tensors& dy) { return Tensors{dy[0] * b}; });
                        return grad(f({a})[0].sum(), a);
                      })(x, d),
                      Catch::Contains("TSR-F003") && Catch::Contains("custom_gradient"));
  }
}

TEST_CASE("the first step that makes a NaN is named") {
  const CompileOptions checked{.backend = "eager", .options = {"runtime.check_nan=true"}};
  const Tensor x = tensor({4.f, 0.f, 1.f});
  // Forward has none, and backward multiplies zero by the infinite slope of a root.
  const auto root = [](const Tensor& a) { return grad((a.sqrt() * 0.0).sum(), a) + 1.0; };
  CHECK(compile(root, {.backend = "eager"})(x).isnan().to_vector<bool>() == std::vector<bool>{false, true, false});
  CHECK_THROWS_WITH(compile(root, checked)(x), Catch::Contains("TSR-R051") && Catch::Contains("element 1"));
  auto logarithm = compile([](const Tensor& a) { return (a - 1.0).log().exp() * 2.0; }, checked);
  CHECK_THROWS_WITH(logarithm(x), Catch::Contains("TSR-R051") && Catch::Contains("log"));
  CHECK(logarithm(x + 1.0).to_vector<float>()[0] == Approx(8));
}

TEST_CASE("a tensor that is written between forward and backward is named") {
  Generator g(5);
  Tensor x = randn({6, 8}, f64, &g), w = randn({8, 8}, f64, &g);
  const Tensor dy = randn({6, 8}, f64, &g);
  w.requires_grad_();
  auto layer =
      compile([](const Tensor& a, const Tensor& m) { return a.matmul(m).tanh(); }, {.name = "layer", .args = {"a", "m"}});
  Tensor y = layer(x, w);
  x.fill_(2.0);
  const std::string expected =
      "error[TSR-A022] the backward half of @layer needs 'a', f64[6, 8], as its forward half has seen it, and its memory has "
      "been written in place since (1 write)\n"
      "  hint: run backward before the write, write into a copy (clone()), or compute value and gradient in one compiled "
      "function";
  CHECK_THROWS_WITH(y.backward(dy), expected);
  CHECK_THROWS_WITH(y.backward(dy), expected);  // nothing has run, and what was kept is there yet
  CHECK(!w.grad().defined());
  // The result itself, which the gradient of tanh reads.
  y = layer(x, w);
  y.detach().zero_();
  CHECK_THROWS_WITH(y.backward(dy), Catch::Contains("TSR-A022") && Catch::Contains("its result 0"));
  // Through another tensor of the same memory, and by host code that says so.
  y = layer(x, w);
  x.detach().copy_(ones({6, 8}, f64));
  CHECK_THROWS_WITH(y.backward(dy), Catch::Contains("TSR-A022"));
  y = layer(x, w);
  x.data<double>()[0] = 5;
  x.mark_written();
  CHECK_THROWS_WITH(y.backward(dy), Catch::Contains("TSR-A022"));
  // What backward does not read may change: the gradient of w needs x alone.
  auto product = compile([](const Tensor& a, const Tensor& m) { return a.matmul(m); });
  y = product(x, w);
  w.detach().fill_(0.0);
  y.backward(dy);
  CHECK(gap(w.grad(), x.t().matmul(dy)) < 1e-12);
  // The optimiser's step replaces a parameter that a forward half holds: it takes new memory, and the old value is there.
  Net model;
  model.requires_grad_();
  optim::SGD optimizer(model, {.lr = 0.1});
  auto loss = compile([](Net& m, const Tensor& in) { return (m(in) * m(in)).sum(); });
  auto update = compile([](Net& m, optim::SGD& o, const std::vector<Tensor>& gradients) { o.step(m, gradients); });
  const Tensor in = randn({4, 4}, f64, &g);
  loss(model, in).backward();
  const std::vector<Tensor> first = model.gradients();
  const Tensor later = loss(model, in);
  update(model, optimizer, first);
  std::vector<Tensor> old;
  for (const auto& [name, p] : model.named_parameters()) CHECK(!p->grad().defined());
  later.backward();
  CHECK_THROWS_WITH(x.copy_(ones({3}, f64)), Catch::Contains("TSR-T029") && Catch::Contains("f64[6, 8]"));
  CHECK_THROWS_WITH(compile([](const Tensor& a) { return a.fill_(1.0); })(x), Catch::Contains("TSR-F063"));
}

TEST_CASE("a chain of 100,000 recorded calls goes without deep recursion, whether backward has run or not") {
  auto next = compile([](const Tensor& a) { return a * 1.0; });
  Tensor x = ones({1}).requires_grad_();
  for (const bool backward : {false, true}) {
    Tensor y = next(x);
    for (int i = 1; i < 100000; ++i) y = next(y);
    if (backward) y.backward();
  }
  CHECK(x.grad().item<float>() == 1);
}
