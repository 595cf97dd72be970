// SPDX-License-Identifier: Apache-2.0
// linear_cross_entropy against the two operations that it stands for, and the memory that it takes.
#include <catch2/catch.hpp>

#include <tessera/tessera.hpp>

using namespace tessera;

namespace {

double between(const Tensor& a, const Tensor& b) {
  return (a - b).abs().max().item<double>() / std::max(1e-30, b.abs().max().item<double>());
}

struct Case {
  const char* reduction;
  double smoothing;
  int64_t ignored, rows;
};

}  // namespace

TEST_CASE("linear cross entropy is the cross entropy of the linear function, with its gradients") {
  Generator g(3);
  const Tensor x = randn({2, 11, 6}, f64, &g), w = randn({9, 6}, f64, &g);
  const Tensor target = randint(0, 9, {2, 11}, i64, &g);
  for (const Case& c : {Case{"mean", 0, -100, 0}, Case{"sum", 0, 4, 5}, Case{"mean", 0.1, 4, 1}, Case{"mean", 1, -100, 22},
                        Case{"sum", 0.3, 0, 7}}) {
    INFO(c.reduction << " " << c.smoothing << " " << c.ignored << " " << c.rows);
    const auto ours = [&](const Tensor& a, const Tensor& m, const Tensor& t) {
      return F::linear_cross_entropy(a, m, t, {c.reduction, c.ignored, c.smoothing, c.rows});
    };
    const auto theirs = [&](const Tensor& a, const Tensor& m, const Tensor& t) {
      return F::cross_entropy(F::linear(a.reshape({-1, 6}), m), t.reshape({-1}), c.reduction, c.ignored, c.smoothing);
    };
    const auto all = [](auto f) {  // loss, and gradients with another cotangent than 1
      return compile([f](const Tensor& a, const Tensor& m, const Tensor& t) {
        const Tensor loss = f(a, m, t);
        std::vector<Tensor> out = grad({loss * 3.0}, {a, m});
        out.push_back(loss);
        return out;
      });
    };
    const std::vector<Tensor> found = all(ours)(x, w, target), expected = all(theirs)(x, w, target);
    for (size_t i = 0; i < 3; ++i) CHECK(between(found[i], expected[i]) < 1e-12);
    CHECK(between(ours(x, w, target), theirs(x, w, target)) < 1e-12);  // at once
    CHECK(between(compile([&](const Tensor& a, const Tensor& m, const Tensor& t) { return ours(a, m, t); })(x, w, target),
                  theirs(x, w, target)) < 1e-12);
  }
}

TEST_CASE("linear cross entropy has second derivatives") {
  Generator g(3);
  const Tensor x = randn({4, 3}, f64, &g), w = randn({5, 3}, f64, &g), target = randint(0, 5, {4}, i64, &g);
  const auto second = [](auto f) {
    return compile([f](const Tensor& a, const Tensor& m, const Tensor& t) {
      return grad(grad(f(a, m, t), a).square().sum(), std::vector<Tensor>{a, m});
    });
  };
  const auto found = second([](const Tensor& a, const Tensor& m, const Tensor& t) {
    return F::linear_cross_entropy(a, m, t, {.rows = 3});
  })(x, w, target);
  const auto expected = second(
      [](const Tensor& a, const Tensor& m, const Tensor& t) { return F::cross_entropy(F::linear(a, m), t); })(x, w, target);
  for (size_t i = 0; i < 2; ++i) CHECK(between(found[i], expected[i]) < 1e-12);
}

TEST_CASE("linear cross entropy takes the memory of a few chunks of logits") {
  Generator g(3);
  const Tensor x = randn({1024, 8}, f32, &g), w = randn({512, 8}, f32, &g), target = randint(0, 512, {1024}, i64, &g);
  // The program runs in an arena of at most so many bytes, or it is refused.
  const auto fits = [&](auto f, int64_t bytes) {
    auto compiled = compile(f, {.options = {"runtime.arena_max_bytes=" + std::to_string(bytes)}});
    try {
      compiled(x, w, target);
      return true;
    } catch (const Error& e) {
      INFO(e.what());
      CHECK(e.code() == "TSR-R025");
      return false;
    }
  };
  // Sixteen chunks, of which fusion joins a handful.
  constexpr int64_t kLogits = 1024 * 512 * 4;
  const auto loss = [](const Tensor& a, const Tensor& m, const Tensor& t) {
    return F::linear_cross_entropy(a, m, t, {.rows = 64});
  };
  const auto gradients = [&](const Tensor& a, const Tensor& m, const Tensor& t) { return grad({loss(a, m, t)}, {a, m}); };
  const auto whole = [](const Tensor& a, const Tensor& m, const Tensor& t) { return F::cross_entropy(F::linear(a, m), t); };
  CHECK(fits(loss, kLogits / 2));
  CHECK(fits(gradients, kLogits));
  CHECK(!fits(whole, kLogits - 1));
}

TEST_CASE("linear cross entropy refuses what does not fit") {
  const Tensor x = ones({3, 4}), w = ones({5, 4}), t = zeros({3}, i64);
  CHECK_THROWS_WITH(F::linear_cross_entropy(x, w, t, {.reduction = "none"}),
                    Catch::Contains("TSR-F066") && Catch::Contains("'none'"));
  CHECK_THROWS_WITH(F::linear_cross_entropy(x, w, t, {.label_smoothing = 2}), Catch::Contains("TSR-F066"));
  CHECK_THROWS_WITH(F::linear_cross_entropy(x, ones({5, 3}), t), Catch::Contains("TSR-F066"));
  CHECK_THROWS_WITH(F::linear_cross_entropy(x, w, zeros({2, 3}, i64)), Catch::Contains("TSR-F066"));
  CHECK_THROWS_WITH(F::linear_cross_entropy(x, w, zeros({3})), Catch::Contains("TSR-F066"));
  CHECK_THROWS_WITH(F::linear_cross_entropy(x, w, full({3}, 7, i64)), Catch::Contains("TSR-R011"));
}
