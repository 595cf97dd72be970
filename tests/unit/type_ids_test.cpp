// SPDX-License-Identifier: Apache-2.0
#include "dispatch/type_ids.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "memory/block_pool.hpp"

namespace type_ids_test {

using namespace tessera::core;

namespace {

using Sizes = std::vector<int64_t>;

TensorRef dense(uint32_t dtype, const Sizes& sizes) { return TensorRef(tensor_create(dtype, sizes, 0)); }

}  // namespace

TEST_CASE("types have equal numbers exactly when guards take them for the same") {
  const TensorRef x = dense(TSR_F32, {7, 1, 11}), y = dense(TSR_F32, {7, 1, 11});
  REQUIRE(find_type_number(x->desc) == 0);  // nothing was compiled for it
  REQUIRE(known_type_of(x.get()) == 0);
  const uint32_t n = give_type_number(x->desc);
  REQUIRE(n != 0);
  REQUIRE(give_type_number(y->desc) == n);
  REQUIRE(find_type_number(y->desc) == n);
  REQUIRE(known_type_of(x.get()) == n);
  REQUIRE(known_type_of(x.get()) == n);
  x.get()->requires_grad = 1;  // a state, not a type
  REQUIRE(known_type_of(x.get()) == n);

  std::set<uint32_t> numbers = {n};
  const auto is_new = [&](const TensorRef& t) { return numbers.insert(give_type_number(t->desc)).second; };
  REQUIRE(is_new(dense(TSR_I32, {7, 1, 11})));
  REQUIRE(is_new(dense(TSR_F32, {7, 11})));
  REQUIRE(is_new(dense(TSR_F32, {1, 7, 11})));
  REQUIRE(is_new(dense(TSR_F32, {7, 1, 12})));
  REQUIRE(is_new(dense(TSR_F32, {})));
  REQUIRE(is_new(dense(TSR_F32, {0})));
  const TensorRef base = dense(TSR_F32, {7, 1, 22});
  const Sizes sizes = {7, 1, 11}, rows = {22, 22, 1}, columns = {1, 7, 7};
  REQUIRE(is_new(TensorRef(tensor_view(*base, 0, sizes, rows.data()))));
  REQUIRE(is_new(TensorRef(tensor_view(*base, 0, sizes, columns.data()))));
  const Sizes odd = {11, 5, 1};  // row-major all the same: nobody steps along a dimension of one
  REQUIRE_FALSE(is_new(TensorRef(tensor_view(*base, 0, sizes, odd.data()))));
  REQUIRE_FALSE(is_new(TensorRef(tensor_view(*base, 3, sizes, nullptr))));
}

TEST_CASE("a handle that is used again forgets the type it had") {
  for (int64_t n = 1; n < 50; ++n) {
    const TensorRef t = dense(TSR_U16, {n, 3});
    REQUIRE(known_type_of(t.get()) == 0);
    give_type_number(t->desc);
    REQUIRE(known_type_of(t.get()) == find_type_number(t->desc));
  }
}

TEST_CASE("threads agree on numbers") {
  std::vector<TensorRef> tensors;
  for (int64_t n = 1; n <= 200; ++n) tensors.push_back(dense(TSR_I16, {n}));
  std::vector<std::vector<uint32_t>> given(4, std::vector<uint32_t>(tensors.size()));
  std::vector<std::thread> threads;
  for (size_t k = 0; k < given.size(); ++k)
    threads.emplace_back([&, k] {
      for (size_t i = 0; i < tensors.size(); ++i) {
        const size_t at = k % 2 ? i : tensors.size() - 1 - i;
        const uint32_t before = known_type_of(tensors[at].get());
        given[k][at] = give_type_number(tensors[at]->desc);
        if (before != 0 && before != given[k][at]) given[k][at] = 0;
        if (known_type_of(tensors[at].get()) != given[k][at]) given[k][at] = 0;
      }
    });
  for (std::thread& t : threads) t.join();
  std::set<uint32_t> different;
  for (size_t i = 0; i < tensors.size(); ++i) {
    REQUIRE(given[0][i] != 0);
    for (const auto& g : given) REQUIRE(g[i] == given[0][i]);
    different.insert(given[0][i]);
  }
  REQUIRE(different.size() == tensors.size());
}

TEST_CASE("blocks begin at cache lines, do not overlap, and serve again") {
  std::vector<std::pair<char*, size_t>> blocks;
  for (size_t i = 0; i < 3000; ++i) {
    const size_t bytes = i * 37 % 6000;
    auto* p = static_cast<char*>(allocate_lines(bytes));
    REQUIRE(reinterpret_cast<uintptr_t>(p) % 64 == 0);
    std::memset(p, static_cast<int>(i % 251), bytes);
    blocks.emplace_back(p, bytes);
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto [p, bytes] = blocks[i];
    bool whole = true;
    for (size_t k = 0; k < bytes; ++k) whole = whole && p[k] == static_cast<char>(i % 251);
    REQUIRE(whole);
  }
  for (const auto& [p, bytes] : blocks) free_lines(p, bytes);
  free_lines(nullptr, 64);
}

}  // namespace type_ids_test
