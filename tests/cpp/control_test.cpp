// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <tessera/tessera.hpp>

using namespace tessera;
using Tensors = std::vector<Tensor>;

namespace {
Tensor halve_or_double(const Tensor& x) {
  return cond(
      x.sum() > 10, [](const Tensors& a) { return Tensors{a[0] / 2}; }, [](const Tensors& a) { return Tensors{a[0] * 2}; },
      {x})[0];
}
// Collatz steps until 1.
Tensor collatz(const Tensor& n) {
  return while_loop([](const Tensors& a) { return Tensors{(a[0] != 1).all()}; },
                    [](const Tensors& a) {
                      return Tensors{where(a[0] % 2 == 0, floor_divide(a[0], full({}, 2, i64)), a[0] * 3 + 1), a[1] + 1};
                    },
                    {n, zeros({}, i64)})[1];
}
std::pair<Tensor, Tensor> running(const Tensor& xs, bool reverse) {
  auto [carry, out] = scan(
      [](const Tensors& a) {
        return Tensors{a[0] + a[1], a[0] * a[2]};
      },
      {zeros({2})}, {xs}, {full({2}, 10)}, reverse);
  return {carry[0], out[0]};
}
}  // namespace

TEST_CASE("cond, while_loop and scan give the same inside and outside a compiled function") {
  auto c = compile(halve_or_double);
  for (float v : {1.f, 100.f}) {
    const Tensor x = full({2}, v);
    CHECK(c(x).to_vector<float>() == halve_or_double(x).to_vector<float>());
  }
  CHECK(c(full({2}, 1)).to_vector<float>() == std::vector<float>{2, 2});
  CHECK(c(full({2}, 100)).to_vector<float>() == std::vector<float>{50, 50});

  auto w = compile(collatz);
  CHECK(w(full({}, 27, i64)).item<int64_t>() == 111);
  CHECK(w(full({}, 1, i64)).item<int64_t>() == 0);
  CHECK(collatz(full({}, 27, i64)).item<int64_t>() == 111);

  const Tensor xs = arange(6).to(f32).reshape({3, 2});
  auto s = compile(running);
  for (bool reverse : {false, true}) {
    auto [carry, out] = s(xs, reverse);
    auto [carry2, out2] = running(xs, reverse);
    CHECK(carry.to_vector<float>() == std::vector<float>{6, 9});
    CHECK(out.to_vector<float>() == out2.to_vector<float>());
    CHECK(carry2.to_vector<float>() == carry.to_vector<float>());
  }
  CHECK(s(xs, false).second.to_vector<float>() == std::vector<float>{0, 0, 0, 10, 20, 40});
}

TEST_CASE("a region that uses a tensor from outside is told how to pass it") {
  auto f = compile([](const Tensor& x, const Tensor& y) {
    return cond(
        x.sum() > 0, [&](const Tensors& a) { return Tensors{a[0] + y}; }, [](const Tensors& a) { return Tensors{a[0]}; },
        {x})[0];
  });
  CHECK_THROWS_WITH(f(ones({2}), ones({2})), Catch::Contains("TSR-F003"));
}
