// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include <tessera/tessera.hpp>

using namespace tessera;

namespace {
struct Inner : nn::Module<Inner> {
  nn::Linear fc{3, 3};
  Inner() { add("fc", fc); }
  Tensor forward(const Tensor& x) { return fc(x).relu(); }
};
struct Outer : nn::Module<Outer> {
  nn::ModuleList<Inner> layers;
  nn::BatchNorm2d norm{2};
  Outer() {
    layers.emplace();
    layers.emplace();
    add("layers", layers);
    add("norm", norm);
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x;
    for (Inner& l : layers) y = l(y);
    return y;
  }
};
double error(const Tensor& a, const Tensor& b) { return (a - b).abs().max().item<double>(); }
}  // namespace

TEST_CASE("parameters and state have the names of their path") {
  Outer m;
  std::vector<std::string> names;
  for (auto& [n, t] : m.named_parameters()) names.push_back(n);
  CHECK(names == std::vector<std::string>{"layers.0.fc.weight", "layers.0.fc.bias", "layers.1.fc.weight", "layers.1.fc.bias",
                                          "norm.weight", "norm.bias"});
  CHECK(m.state_dict().count("norm.running_mean") == 1);
  CHECK(m.num_parameters() == 2 * (9 + 3) + 4);
}

TEST_CASE("a state dict loads into a module of the same structure only") {
  Outer a, b;
  b.load_state_dict(a.state_dict());
  const Tensor x = ones({2, 3});
  CHECK(error(a(x), b(x)) == 0);
  auto state = a.state_dict();
  state.erase("norm.bias");
  state["extra"] = ones({1});
  CHECK_THROWS_WITH(b.load_state_dict(state), Catch::Contains("missing: norm.bias") && Catch::Contains("unexpected: extra"));
}

TEST_CASE("functions agree with their definitions") {
  Generator g(3);
  const Tensor x = randn({4, 8}, f64, &g), w = randn({5, 8}, f64, &g), b = randn({5}, f64, &g);
  CHECK(error(F::linear(x, w, b), x.matmul(w.t()) + b) < 1e-12);
  CHECK(error(F::softmax(x, -1), x.exp() / x.exp().sum({-1}, true)) < 1e-12);
  CHECK(error(F::log_softmax(x, -1), x - x.logsumexp({-1}, true)) < 1e-12);
  const Tensor mean = x.mean({-1}, true), var = x.var({-1}, 0, true);
  CHECK(error(F::layer_norm(x, {8}), (x - mean) / (var + 1e-5).sqrt()) < 1e-12);
  CHECK(error(F::rms_norm(x, {8}), x / (x.square().mean({-1}, true) + 1e-6).sqrt()) < 1e-12);
  CHECK(error(F::gelu(x), x * 0.5 * (1.0 + (x * std::sqrt(0.5)).erf())) < 1e-12);
  CHECK(error(F::silu(x), x * x.sigmoid()) < 1e-12);
  const Tensor q = randn({2, 3, 5, 4}, f64, &g), k = randn({2, 3, 5, 4}, f64, &g), v = randn({2, 3, 5, 4}, f64, &g);
  const Tensor scores = q.matmul(k.transpose(-1, -2)) * 0.5;
  CHECK(error(F::scaled_dot_product_attention(q, k, v), scores.softmax(-1).matmul(v)) < 1e-12);
  const Tensor causal = scores.masked_fill(ones({5, 5}, boolean).tril().logical_not(), -INFINITY);
  CHECK(error(F::scaled_dot_product_attention(q, k, v, {}, true), causal.softmax(-1).matmul(v)) < 1e-12);
  CHECK_THROWS_AS(F::layer_norm(x, {7}), UserError);
}

TEST_CASE("convolution and pooling on values worked out by hand") {
  const Tensor x = arange(16).to(f32).reshape({1, 1, 4, 4});
  CHECK(F::conv2d(x, ones({1, 1, 3, 3})).to_vector<float>() == std::vector<float>{45, 54, 81, 90});
  CHECK(F::conv2d(x, ones({1, 1, 3, 3}), {}, {2}, {1}).to_vector<float>() == std::vector<float>{10, 24, 51, 90});
  CHECK(F::max_pool2d(x, {2}).to_vector<float>() == std::vector<float>{5, 7, 13, 15});
  CHECK(F::avg_pool2d(x, {2}).to_vector<float>() == std::vector<float>{2.5, 4.5, 10.5, 12.5});
  CHECK(F::adaptive_avg_pool2d(x, {1}).item<float>() == 7.5f);
  CHECK(F::interpolate(x, {2, 2}).to_vector<float>() == std::vector<float>{0, 2, 8, 10});
  CHECK(F::pad(ones({1, 2}), {1, 0}).to_vector<float>() == std::vector<float>{0, 1, 1});
  const Tensor logits = tensor(std::vector<float>{0, 0, 0, 0}, {2, 2});
  CHECK(F::cross_entropy(logits, tensor(std::vector<int64_t>{0, 1})).item<float>() == Approx(std::log(2.0)));
}
