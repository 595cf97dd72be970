// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <tessera/tessera.hpp>

using namespace tessera;

namespace {
Tensor grid() { return arange(24).reshape({2, 3, 4}); }
std::vector<int64_t> at(const Tensor& t) { return t.to_vector<int64_t>(); }
}  // namespace

TEST_CASE("integers, slices, None and Ellipsis index as in Python") {
  const Tensor x = grid();
  CHECK(at(x[1][2]) == std::vector<int64_t>{20, 21, 22, 23});
  CHECK(at(x.index({-1, -1, -1})) == std::vector<int64_t>{23});
  CHECK(at(x.index({0, Slice(1, 3), 0})) == std::vector<int64_t>{4, 8});
  CHECK(at(x.index({Ellipsis, 0})) == std::vector<int64_t>{0, 4, 8, 12, 16, 20});
  CHECK(x.index({None, 0}).sizes() == std::vector<int64_t>{1, 3, 4});
  CHECK(x.index({0, Ellipsis, None}).sizes() == std::vector<int64_t>{3, 4, 1});
  CHECK(at(x.index({0, 0, Slice({}, {}, 2)})) == std::vector<int64_t>{0, 2});
  CHECK(at(x.index({0, 0, Slice(-2, {})})) == std::vector<int64_t>{2, 3});
  CHECK(x.index({0, 0, Slice(3, 1)}).numel() == 0);
  CHECK(x.index({0, 0, Slice(0, 100)}).numel() == 4);
  CHECK(at(x.index({0, tensor(std::vector<int64_t>{2, 0}), 1})) == std::vector<int64_t>{9, 1});
}

TEST_CASE("indices out of range are refused with their place") {
  const Tensor x = grid();
  CHECK_THROWS_WITH(x[2], Catch::Contains("index 2 is out of range for dimension 0 of size 2"));
  CHECK_THROWS_WITH(x.index({0, 0, 0, 0}), Catch::Contains("4 indices for a tensor of rank 3"));
  CHECK_THROWS_WITH(x.slice(3), Catch::Contains("dimension 3 is out of range for rank 3"));
  CHECK_THROWS_AS(x.slice(0, 0, 1, -1), UserError);
  CHECK_THROWS_AS(x.index_select(0, tensor(std::vector<int64_t>{5})), UserError);
}
