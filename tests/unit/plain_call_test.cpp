// SPDX-License-Identifier: Apache-2.0
// The fast way to an entry finds what the general way finds.
#include "dispatch/plain_call.hpp"

#include <catch2/catch.hpp>
#include <vector>

#include "dispatch/entry_table.hpp"

namespace plain_call_test {

using namespace tessera::core;

namespace {

// f(a tensor, an int, a tensor, a float, a tensor that is not read)
struct Call {
  std::vector<TensorRef> tensors;
  std::vector<tsr_arg> args;
  Call(int64_t rows, int64_t number, int64_t columns, double real) {
    for (const int64_t n : {rows, columns, int64_t{3}}) {
      const int64_t sizes[] = {n};
      tensors.emplace_back(tensor_create(TSR_F32, sizes, 0));
    }
    args.push_back({tensors[0].get(), 0, 0, nullptr, TSR_ARG_TENSOR, TSR_INPUT_ARG});
    args.push_back({nullptr, number, 0, nullptr, TSR_ARG_INT, TSR_INPUT_ARG});
    args.push_back({tensors[1].get(), 0, 0, nullptr, TSR_ARG_TENSOR, TSR_INPUT_ARG});
    args.push_back({nullptr, 0, real, nullptr, TSR_ARG_FLOAT, TSR_INPUT_ARG});
    args.push_back({tensors[2].get(), 0, 0, nullptr, TSR_ARG_TENSOR, TSR_INPUT_ARG});
  }
  const Entry* insert_into(EntryTable& table) const {
    auto e = std::make_unique<Entry>();
    for (const tsr_arg& a : args) {
      LeafGuard leaf;
      leaf.kind = a.kind;
      leaf.guarded = &a != &args.back();
      leaf.role = a.role;
      if (a.kind == TSR_ARG_TENSOR) leaf.rank = 1, leaf.fixed = 1;
      e->guards.mask.leaves.push_back(leaf);
    }
    e->guards.mask.finish();
    return table.insert(std::move(e), args.data(), args.size());
  }
  const Entry* find_in(const EntryTable& table) const { return table.find(args.data(), args.size()); }
  const Entry* find_plainly_in(const EntryTable& table) const {
    PlainMemory memory;
    const FastCall* fast = nullptr;
    return table.find_plain(args.data(), args.size(), memory, &fast);
  }
};

}  // namespace

TEST_CASE("a call in one pass finds the entry that the general way finds") {
  EntryTable table;
  std::vector<const Entry*> made;
  for (int64_t rows = 1; rows <= 20; ++rows)
    for (int64_t number = 0; number < 3; ++number)
      for (const double real : {0.0, 1.0, -2.5}) {
        const Call call(rows, number, 40, real);
        REQUIRE(call.find_in(table) == nullptr);
        REQUIRE(call.find_plainly_in(table) == nullptr);
        made.push_back(call.insert_into(table));
      }
  REQUIRE(table.num_groups() == 1);
  size_t next = 0;
  for (int64_t rows = 1; rows <= 20; ++rows)
    for (int64_t number = 0; number < 3; ++number)
      for (const double real : {0.0, 1.0, -2.5}) {
        Call call(rows, number, 40, real);
        const Entry* const e = made[next++];
        REQUIRE(call.find_in(table) == e);
        REQUIRE(call.find_plainly_in(table) == e);
        // What it does not read may be another one, but not another kind.
        const int64_t sizes[] = {2, 2};
        const TensorRef other(tensor_create(TSR_I8, sizes, 0));
        call.args[4].tensor = other.get();
        REQUIRE(call.find_plainly_in(table) == e);
        call.args[4].tensor = nullptr;
        REQUIRE(call.find_plainly_in(table) == nullptr);
        call.args[4].kind = TSR_ARG_NONE;
        REQUIRE(call.find_plainly_in(table) == nullptr);
      }
}

TEST_CASE("what differs is not found") {
  EntryTable table;
  const Call call(4, 1, 5, 1.0);
  REQUIRE(call.insert_into(table) != nullptr);
  REQUIRE(call.find_plainly_in(table) != nullptr);
  for (const Call& other : {Call(5, 1, 4, 1.0), Call(4, 2, 5, 1.0), Call(4, 1, 5, -1.0), Call(5, 1, 5, 1.0)}) {
    REQUIRE(other.find_plainly_in(table) == nullptr);
    REQUIRE(other.find_in(table) == nullptr);
  }
  SECTION("a gradient, in whichever state it was compiled") {
    call.tensors[1].get()->requires_grad = 1;
    REQUIRE(call.find_plainly_in(table) == nullptr);
    REQUIRE(call.find_in(table) == nullptr);
  }
  SECTION("the state of the thread") {
    const bool before = set_grad_enabled(false);
    REQUIRE(call.find_plainly_in(table) == nullptr);
    REQUIRE(call.find_in(table) == nullptr);
    set_grad_enabled(before);
    REQUIRE(call.find_plainly_in(table) != nullptr);
  }
  SECTION("kinds, roles and their number") {
    Call changed(4, 1, 5, 1.0);
    changed.args[1].kind = TSR_ARG_BOOL;
    REQUIRE(changed.find_plainly_in(table) == nullptr);
    changed.args[1].kind = TSR_ARG_INT;
    changed.args[0].role = TSR_INPUT_PARAM;
    REQUIRE(changed.find_plainly_in(table) == nullptr);
    changed.args[0].role = TSR_INPUT_ARG;
    REQUIRE(changed.find_plainly_in(table) != nullptr);
    changed.args.pop_back();
    REQUIRE(changed.find_plainly_in(table) == nullptr);
  }
}

}  // namespace plain_call_test
