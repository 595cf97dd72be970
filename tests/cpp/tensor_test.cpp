// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>

#include <tessera/tessera.hpp>

#include "support.hpp"

using namespace tessera;

namespace {
Tensor grid(std::vector<int64_t> shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  std::vector<float> v;
  for (int64_t i = 0; i < n; ++i) v.push_back(static_cast<float>(i));
  return tensor(v, std::move(shape));
}
}  // namespace

TEST_CASE("creation gives the values, shape and dtype asked for") {
  CHECK(values(ones({2, 3})) == std::vector<float>(6, 1.0f));
  CHECK(zeros({0, 3}).numel() == 0);
  CHECK(full({2}, 7, i32).to_vector<int32_t>() == std::vector<int32_t>{7, 7});
  CHECK(arange(4).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(arange(2, 9, 3).to_vector<int64_t>() == std::vector<int64_t>{2, 5, 8});
  CHECK(arange(5, 0, -2).to_vector<int64_t>() == std::vector<int64_t>{5, 3, 1});
  CHECK(values(eye(2)) == std::vector<float>{1, 0, 0, 1});
  CHECK(tensor(std::vector<bool>{true, false}).dtype() == boolean);
  CHECK(scalar(2.5, f16).item<double>() == 2.5);
  CHECK(tensor(std::vector<float>{1, 2, 3, 4}, {2, -1}).sizes() == std::vector<int64_t>{2, 2});
  CHECK_THROWS_AS(tensor(std::vector<float>{1, 2, 3}, {2, 2}), UserError);
}

TEST_CASE("arithmetic broadcasts and follows the operators") {
  const Tensor a = grid({2, 3}), b = tensor({10.f, 20.f, 30.f});
  CHECK(values(a + b) == std::vector<float>{10, 21, 32, 13, 24, 35});
  CHECK(values(a - 1) == std::vector<float>{-1, 0, 1, 2, 3, 4});
  CHECK(values(2.0 * a) == std::vector<float>{0, 2, 4, 6, 8, 10});
  CHECK(values(-a) == std::vector<float>{0, -1, -2, -3, -4, -5});
  CHECK(values(a % 2) == std::vector<float>{0, 1, 0, 1, 0, 1});
  CHECK((a > 2).to_vector<bool>() == std::vector<bool>{false, false, false, true, true, true});
  CHECK((3 == a).to_vector<bool>() == std::vector<bool>{false, false, false, true, false, false});
  CHECK(values(where(a > 2, a, -a)) == std::vector<float>{0, -1, -2, 3, 4, 5});
  CHECK(values(a.clamp(1, 4)) == std::vector<float>{1, 1, 2, 3, 4, 4});
  CHECK(values(a.masked_fill(a < 2, 9)) == std::vector<float>{9, 9, 2, 3, 4, 5});
  CHECK(values(a.pow(2)) == std::vector<float>{0, 1, 4, 9, 16, 25});
  CHECK_THROWS_AS(a + grid({4}), UserError);
}

TEST_CASE("reductions agree with sums by hand") {
  const Tensor a = grid({2, 3});
  CHECK(a.sum().item<float>() == 15);
  CHECK(values(a.sum({0})) == std::vector<float>{3, 5, 7});
  CHECK(a.sum({1}, true).sizes() == std::vector<int64_t>{2, 1});
  CHECK(a.mean().item<double>() == 2.5);
  CHECK(a.max().item<float>() == 5);
  CHECK(a.argmax().item<int64_t>() == 5);
  auto [v, i] = a.max(1);
  CHECK(values(v) == std::vector<float>{2, 5});
  CHECK(i.to_vector<int64_t>() == std::vector<int64_t>{2, 2});
  CHECK(a.var({1}).to_vector<float>() == std::vector<float>{1, 1});
  CHECK(values(a.cumsum(1)) == std::vector<float>{0, 1, 3, 3, 7, 12});
  CHECK((a > 4).any().item<bool>());
  CHECK_FALSE((a > 4).all().item<bool>());
  CHECK_THROWS_AS(arange(3).mean(), UserError);
}

TEST_CASE("shape functions move the right elements") {
  const Tensor a = grid({2, 3});
  CHECK(values(a.t()) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(values(a.reshape({3, -1})) == values(a));
  CHECK(a.unsqueeze(-1).sizes() == std::vector<int64_t>{2, 3, 1});
  CHECK(a.unsqueeze(0).squeeze().sizes() == std::vector<int64_t>{2, 3});
  CHECK(grid({2, 3, 4}).flatten(1).sizes() == std::vector<int64_t>{2, 12});
  CHECK(values(tensor({1.f, 2.f}).unsqueeze(1).expand({-1, 2})) == std::vector<float>{1, 1, 2, 2});
  CHECK(values(cat({a, a}, 1)) == std::vector<float>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(stack({a, a}).sizes() == std::vector<int64_t>{2, 2, 3});
  CHECK(values(a.flip({1})) == std::vector<float>{2, 1, 0, 5, 4, 3});
  CHECK(values(a.roll({1}, {1})) == std::vector<float>{2, 0, 1, 5, 3, 4});
  CHECK(values(tensor({1.f, 2.f}).repeat({2, 2})) == std::vector<float>{1, 2, 1, 2, 1, 2, 1, 2});
  const auto parts = grid({5}).split(2);
  REQUIRE(parts.size() == 3);
  CHECK(values(parts[2]) == std::vector<float>{4});
  CHECK(values(grid({3, 3}).tril()) == std::vector<float>{0, 0, 0, 3, 4, 0, 6, 7, 8});
  CHECK(values(grid({3, 3}).diagonal()) == std::vector<float>{0, 4, 8});
  CHECK_THROWS_AS(a.reshape({4}), UserError);
  CHECK_THROWS_AS(a.transpose(0, 2), UserError);
}

TEST_CASE("products, sorting, gathering") {
  const Tensor a = grid({2, 3});
  CHECK(values(a.matmul(a.t())) == std::vector<float>{5, 14, 14, 50});
  auto [s, i] = tensor({3.f, 1.f, 2.f}).sort();
  CHECK(values(s) == std::vector<float>{1, 2, 3});
  CHECK(i.to_vector<int64_t>() == std::vector<int64_t>{1, 2, 0});
  CHECK(values(tensor({3.f, 1.f, 2.f}).topk(2).first) == std::vector<float>{3, 2});
  CHECK(values(a.index_select(1, tensor(std::vector<int64_t>{2, -3}))) == std::vector<float>{2, 0, 5, 3});
  CHECK(values(a.gather(1, tensor(std::vector<int64_t>{2, 0}, {2, 1}))) == std::vector<float>{2, 3});
  CHECK(values(zeros({3}).scatter_add(0, tensor(std::vector<int64_t>{1, 1, 2}), ones({3}))) == std::vector<float>{0, 2, 1});
  CHECK(tensor({0.f, 5.f, 6.f}).nonzero().to_vector<int64_t>() == std::vector<int64_t>{1, 2});
  CHECK(values(a.masked_select(a > 3)) == std::vector<float>{4, 5});
  CHECK_THROWS_AS(a.matmul(a), UserError);
}

TEST_CASE("values come out as they went in, and misuse is refused") {
  const Tensor a = grid({2, 3});
  CHECK(a.data<float>()[4] == 4);
  CHECK_THROWS_AS(a.data<double>(), UserError);
  CHECK_THROWS_AS(a.item<float>(), UserError);
  CHECK_THROWS_AS(Tensor().sizes(), UserError);
  CHECK(a.to(f64).to(f32).to_vector<float>() == values(a));
  CHECK(tensor({1.5f, -2.5f}).to(i32).to_vector<int32_t>() == std::vector<int32_t>{1, -2});
  float blob[] = {1, 2, 3, 4};
  const Tensor view = from_blob(blob, {2, 2}, f32, {1, 2});
  CHECK(values(view) == std::vector<float>{1, 3, 2, 4});
  CHECK(values(view + 1) == std::vector<float>{2, 4, 3, 5});
  const Tensor copy = view.clone();
  blob[0] = 9;
  CHECK(copy.to_vector<float>()[0] == 1);
  CHECK(view.to_vector<float>()[0] == 9);
  CHECK(a.str().find("f32[2, 3]") != std::string::npos);
}

TEST_CASE("random numbers repeat with their seed") {
  Generator g(7), h(7);
  const Tensor a = randn({100}, f32, &g), b = randn({100}, f32, &h), c = randn({100}, f32, &g);
  CHECK(values(a) == values(b));
  CHECK(values(a) != values(c));
  const Tensor u = rand({10000}, f32, &g);
  CHECK(u.min().item<float>() >= 0);
  CHECK(u.max().item<float>() < 1);
  CHECK(std::abs(u.mean().item<float>() - 0.5f) < 0.02f);  // 6 deviations of the mean of 10,000 uniforms are 0.017
  const Tensor i = randint(-2, 3, {1000}, i64, &g);
  CHECK(i.min().item<int64_t>() == -2);
  CHECK(i.max().item<int64_t>() == 2);
}
