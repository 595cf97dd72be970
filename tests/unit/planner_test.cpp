// SPDX-License-Identifier: Apache-2.0
// Offsets in the arena, size programs, layouts: what is where, and what may share memory.
#include <catch2/catch.hpp>
#include <random>

#include "compile/services.hpp"
#include "fake_backend.hpp"
#include "ir/sizes.hpp"
#include "plan/arena.hpp"
#include "plan/layout.hpp"
#include "plan/size_program.hpp"

namespace planner_test {

using namespace tessera::core;
using namespace tessera::test;

namespace {

constexpr int64_t kAnySize = INT64_MAX;

bool disjoint(const std::vector<ArenaItem>& items) {
  for (size_t i = 0; i < items.size(); ++i)
    for (size_t j = i + 1; j < items.size(); ++j) {
      const ArenaItem &a = items[i], &b = items[j];
      const bool together = a.first <= b.last && b.first <= a.last;
      if (together && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes) return false;
    }
  return true;
}

int64_t lower_bound(const std::vector<ArenaItem>& items) {  // the largest sum alive at one step
  int64_t best = 0;
  for (const ArenaItem& at : items) {
    int64_t sum = 0;
    for (const ArenaItem& i : items)
      if (i.first <= at.first && at.first <= i.last) sum += (i.bytes + 63) / 64 * 64;
    best = std::max(best, sum);
  }
  return best;
}

}  // namespace

TEST_CASE("items of disjoint lifetimes share memory") {
  std::vector<ArenaItem> items = {{1000, 0, 1}, {500, 1, 2}, {1000, 2, 3}};
  REQUIRE(plan_arena(items) == 1024 + 512);
  REQUIRE(items[0].offset == items[2].offset);
  REQUIRE(disjoint(items));
}

TEST_CASE("the smallest gap that fits is taken") {
  // Two gaps from step 5 on: 1024 and 256 bytes. The late item must take the small one.
  std::vector<ArenaItem> items = {{1024, 0, 4}, {512, 0, 9}, {256, 0, 4}, {192, 0, 9}, {150, 5, 9}};
  plan_arena(items);
  REQUIRE(disjoint(items));
  REQUIRE(items[4].offset == items[2].offset);
}

TEST_CASE("random lifetimes: never overlapping, aligned, close to the lower bound, the same every time") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<ArenaItem> items;
    for (int i = 0; i < 80; ++i) {
      const auto first = static_cast<uint32_t>(random() % 60);
      items.push_back({static_cast<int64_t>(random() % 5000), first, first + static_cast<uint32_t>(random() % 12)});
    }
    std::vector<ArenaItem> again = items;
    const int64_t total = plan_arena(items);
    REQUIRE(disjoint(items));
    for (const ArenaItem& i : items) REQUIRE(i.offset % 64 == 0);
    for (const ArenaItem& i : items) REQUIRE(i.offset + i.bytes <= total);
    const int64_t bound = lower_bound(items);
    REQUIRE(total >= bound);
    REQUIRE(total <= bound * 3 / 2);
    REQUIRE(plan_arena(again) == total);
    for (size_t i = 0; i < items.size(); ++i) REQUIRE(again[i].offset == items[i].offset);
  }
}

TEST_CASE("items of one period lie whole periods apart, in a region that shares memory with others") {
  constexpr int64_t kPlane = 200, kUnit = 1600;  // the least multiple of a plane and of 64
  std::vector<ArenaItem> items = {{40 * kPlane, 0, 1, kPlane}, {8 * kPlane, 0, 2, kPlane},
                                  {24 * kPlane, 1, 2, kPlane}, {500, 1, 3},
                                  {40 * kPlane, 2, 3, kPlane}, {8000, 4, 5}};
  const int64_t least = 72 * kPlane + 512;  // steps 1 and 2; what lives later takes the region's place
  REQUIRE(plan_arena_alike(items, least) == least);
  REQUIRE(disjoint(items));
  for (const int i : {1, 2, 4}) REQUIRE((items[static_cast<size_t>(i)].offset - items[0].offset) % kUnit == 0);
  const int64_t alone = 72 * kPlane + 8000;  // nobody takes the region's place
  REQUIRE(plan_arena_alike(items, alone - 1) == least);
  REQUIRE(plan_arena_alike(items, alone) == alone);
  REQUIRE(disjoint(items));
  const int64_t smallest = plan_arena(items);
  REQUIRE(plan_arena_alike(items, least - 1) == smallest);
  // A plane more would be an eighth too much: 5 planes of 13 become 16.
  std::vector<ArenaItem> odd = {{13 * kPlane, 0, 1, kPlane}, {100, 1, 2}};
  REQUIRE(plan_arena_alike(odd, kAnySize) == (13 * kPlane + 63) / 64 * 64 + 128);
}

TEST_CASE("items of different periods share memory only in need") {
  constexpr int64_t kLarge = 64 * 64, kSmall = 64 * 16;  // planes of two sizes
  std::vector<ArenaItem> items = {{16 * kLarge, 0, 1, kLarge},
                                  {4 * kLarge, 2, 3, kLarge},
                                  {16 * kSmall, 3, 5, kSmall},
                                  {7 * kSmall, 6, 7, kSmall},
                                  {16 * kLarge, 8, 9, kLarge}};
  REQUIRE(plan_arena_alike(items, kAnySize) == 16 * kLarge + 16 * kSmall);
  REQUIRE(disjoint(items));
  for (const int i : {1, 4}) REQUIRE(items[static_cast<size_t>(i)].offset == items[0].offset);
  REQUIRE(items[3].offset == items[2].offset);
  REQUIRE((items[2].offset >= items[0].offset + 16 * kLarge || items[2].offset + 16 * kSmall <= items[0].offset));
  REQUIRE(plan_arena_alike(items, 17 * kLarge) == 16 * kLarge);
}

TEST_CASE("periods never make items overlap") {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    std::vector<ArenaItem> items;
    for (int i = 0; i < 80; ++i) {
      const auto first = static_cast<uint32_t>(random() % 60);
      const int64_t period = std::vector<int64_t>{0, 64, 196, 784, 3136, 100, 7}[random() % 7];
      items.push_back({static_cast<int64_t>(1 + random() % 40) * (period ? period : 70), first,
                       first + static_cast<uint32_t>(random() % 12), period});
    }
    const int64_t most = round % 3 == 0 ? kAnySize : plan_arena(items) * (8 + round % 5) / 8,
                  total = plan_arena_alike(items, most);
    REQUIRE(disjoint(items));
    for (const ArenaItem& i : items) REQUIRE((i.offset % 64 == 0 && i.offset + i.bytes <= total));
  }
}

TEST_CASE("periods of any size are taken, and what is beyond any memory is an error with them too") {
  for (const int64_t period : {int64_t{1} << 60, (int64_t{1} << 60) - 1, int64_t{3}, INT64_MAX}) {
    std::vector<ArenaItem> huge(3, {int64_t{1} << 61, 0, 1, period}), beyond = {{INT64_MAX, 0, 1, period}};
    REQUIRE(error_of([&] { plan_arena_alike(huge, kAnySize); }).substr(0, 8) == "TSR-R001");
    REQUIRE(error_of([&] { plan_arena_alike(beyond, kAnySize); }).substr(0, 8) == "TSR-R001");
  }
}

TEST_CASE("an arena beyond any memory is an error") {
  std::vector<ArenaItem> items = {{int64_t{1} << 61, 0, 1}, {int64_t{1} << 61, 0, 1}, {int64_t{1} << 61, 0, 1}};
  REQUIRE(error_of([&] { plan_arena(items); }).substr(0, 8) == "TSR-R001");
}

TEST_CASE("a size program evaluates each expression once its symbols are known") {
  Sizes sizes;
  const tsr_dim s = sizes.symbol("s0", 0, INT64_MAX, false), u = sizes.symbol("u0", 0, INT64_MAX, true);
  SizeProgram p(sizes);
  const tsr_dim doubled = sizes.add(sizes.mul(s, 2), 1);
  const tsr_dim mixed = sizes.make(TSR_DIM_MAX, sizes.make(TSR_DIM_FLOORDIV, u, 3), doubled);
  REQUIRE(p.slot(7) == -1);
  REQUIRE(p.slot(s) == 0);
  REQUIRE(p.slot(u) == 1);
  const int32_t a = p.slot(doubled), b = p.slot(mixed);
  REQUIRE(a >= 2);
  REQUIRE(p.slot(doubled) == a);
  p.set_known(0, 0);
  p.set_known(1, 1);
  p.finish();
  std::vector<int64_t> dims(p.num_slots(), -99);
  dims[0] = 5;
  p.evaluate(0, dims.data());
  REQUIRE(dims[static_cast<size_t>(a)] == 11);
  REQUIRE(dims[static_cast<size_t>(b)] == -99);
  dims[1] = 40;
  p.evaluate(1, dims.data());
  REQUIRE(dims[static_cast<size_t>(b)] == 13);
  dims[0] = INT64_MAX / 2 + 1;
  REQUIRE(error_of([&] { p.evaluate(0, dims.data()); }).substr(0, 8) == "TSR-S001");
}

TEST_CASE("a symbol that nothing determines is refused, alone and in expressions") {
  Sizes sizes;
  const tsr_dim s = sizes.symbol("s0", 0, INT64_MAX, false), t = sizes.symbol("s1", 0, INT64_MAX, false);
  SizeProgram alone(sizes), inside(sizes), known(sizes);
  alone.set_known(0, 0);
  alone.ref(t);
  REQUIRE(error_of([&] { alone.finish(); }).substr(0, 16) == "TSR-R023 size s1");
  inside.set_known(0, 0);
  inside.ref(sizes.add(s, t));
  REQUIRE(error_of([&] { inside.finish(); }).substr(0, 8) == "TSR-R023");
  known.set_known(0, 0);
  known.ref(s);
  REQUIRE(error_of([&] { known.finish(); }).empty());
}

TEST_CASE("a chain of temporaries needs the memory of two, outputs none of it") {
  FakeBackend fake;
  const auto e = compile_text(R"(graph @g(%x: f32[256]) -> (f32[256]) {
    %a = neg %x
    %b = neg %a
    %c = neg %b
    %d = neg %c
    return %d
  })",
                              fake);
  REQUIRE(e->plan().is_static);
  REQUIRE(e->plan().primary->arena_bytes == std::vector<int64_t>{2048});
  REQUIRE(e->plan().primary->output_bytes == 1024);
  fake.in_place = true;
  const auto in_place = compile_text(R"(graph @g(%x: f32[256]) -> (f32[256]) {
    %a = neg %x
    %b = neg %a
    %c = neg %b
    return %c
  })",
                                     fake);
  // The input is the caller's, so the first kernel needs memory; from there on everything happens in the output.
  REQUIRE(in_place->plan().primary->arena_bytes == std::vector<int64_t>{0});
  fake.launches.clear();
  TensorRef x = tensor_of(std::vector<double>(256, 3), {256});
  const auto out = run(*in_place, {x.get()});
  REQUIRE(values_of(*out[0]) == std::vector<double>(256, -3));
  REQUIRE(values_of(*x) == std::vector<double>(256, 3));
  REQUIRE(fake.launches[1].inputs[0].data == fake.launches[1].outputs[0].data);
}

TEST_CASE("memory that is read again is not overwritten in place") {
  FakeBackend fake;
  fake.in_place = true;
  const auto e = compile_text(R"(graph @g(%x: f32[4]) -> (f32[4], f32[4]) {
    %a = neg %x
    %b = neg %a
    %c = add %a, %b
    %t = reshape %c {shape = [2, 2]}
    %u = transpose %t {perm = [1, 0]}
    %d = add %t, %u
    %r = reshape %d {shape = [4]}
    return %r, %a
  })",
                              fake);
  TensorRef x = vector_of({1, 2, 3, 4});
  const auto out = run(*e, {x.get()});
  REQUIRE(values_of(*out[0]) == std::vector<double>{0, 0, 0, 0});
  REQUIRE(values_of(*out[1]) == std::vector<double>{-1, -2, -3, -4});
  const auto f = compile_text(R"(graph @g(%x: f32[2, 2]) -> (f32[2, 2]) {
    %a = neg %x
    %u = transpose %a {perm = [1, 0]}
    %d = add %a, %u
    return %d
  })",
                              fake);
  TensorRef y = tensor_of({1, 2, 3, 4}, {2, 2});
  REQUIRE(values_of(*run(*f, {y.get()})[0]) == std::vector<double>{-2, -5, -5, -8});
}

TEST_CASE("workspaces live for one step") {
  FakeBackend fake;
  fake.workspace = 4096;
  const auto e = compile_text(R"(graph @g(%x: f32[16]) -> (f32[16]) {
    %a = neg %x
    %b = neg %a
    %c = neg %b
    return %c
  })",
                              fake);
  REQUIRE(e->plan().primary->arena_bytes == std::vector<int64_t>{4096 + 2 * 64});
  TensorRef x = tensor_of(std::vector<double>(16, 1), {16});
  REQUIRE(values_of(*run(*e, {x.get()})[0]) == std::vector<double>(16, -1));
  for (const auto& l : fake.launches) REQUIRE(reinterpret_cast<uintptr_t>(l.workspace) % 64 == 0);
}

TEST_CASE("a kernel has workspace for copies of the inputs that are not dense, and of no others") {
  FakeBackend fake;
  fake.workspace = 4096;
  fake.copy_bytes = 1024;
  const auto e = compile_text(R"(graph @g(%x: f32[4, 4], %y: f32[4, 4]) -> (f32[4, 4]) {
    %a = add %x, %y
    %t = transpose %a {perm = [1, 0]}
    %b = add %t, %y
    return %b
  })",
                              fake);
  CHECK(e->plan().primary->arena_bytes == std::vector<int64_t>{4096 + 1024 + 64});
  TensorRef x = tensor_of(std::vector<double>(16, 1), {4, 4}), wide = tensor_of(std::vector<double>(16, 2), {4, 4});
  const int64_t sizes[] = {4, 4}, turned[] = {1, 4};
  TensorRef y(tensor_view(*wide, 0, sizes, turned));
  const auto peak_with = [&](const TensorRef& second) {
    device(kCpu).peak(true);
    REQUIRE(values_of(*run(*e, {x.get(), second.get()})[0]) == std::vector<double>(16, 5));
    return device(kCpu).peak(false);
  };
  const int64_t dense = peak_with(wide);
  CHECK(peak_with(y) == dense + 1024);  // the last step copies two
}

TEST_CASE("the estimate is the plan's own peak") {
  FakeBackend fake;
  const std::string text = R"(graph @g(%x: f32[s0, 8]) -> (f32[s0, 8]) symbols { s0: 2..64 hint 16 } {
    %a = neg %x
    %b = neg %a
    %c = add %a, %b
    return %c
  })";
  const auto g = graph_of(text);
  const CompileOptions options = fake.options();
  const ServiceScope scope(options);
  const Estimate e = estimate(*g);
  REQUIRE(e.peak_bytes == 3 * 16 * 8 * 4);
  REQUIRE(e.seconds > 0);
  REQUIRE(fake.compiled == 0);
  REQUIRE(g->num_live_nodes() == 3);  // works on a copy
}

TEST_CASE("constants are evaluated, what is not constant is refused") {
  FakeBackend fake;
  const CompileOptions options = fake.options();
  const ServiceScope scope(options);
  const auto g = graph_of(R"(graph @g(%x: f32[2]) -> (f32[2], f32[2]) {
    %c = constant {value = dense<f32[2]: [1.0, 2.0]>}
    %d = constant {value = dense<f32[]: 10.0>}
    %a = add %c, %d
    %b = add %c, %x
    return %a, %b
  })");
  tsr_tensor out{};
  const tsr_id a = g->value(g->find_value("a")).def_node, b = g->value(g->find_value("b")).def_node;
  evaluate_node(*g, a, {&out, 1});
  REQUIRE(out.rank == 1);
  REQUIRE(static_cast<float*>(out.data)[0] == 11);
  REQUIRE(static_cast<float*>(out.data)[1] == 12);
  REQUIRE(error_of([&] { evaluate_node(*g, b, {&out, 1}); }).substr(0, 8) == "TSR-R022");
  fake.capabilities |= TSR_CAP_NO_COMPUTE;
  const CompileOptions nothing = fake.options();
  const ServiceScope inner(nothing);
  REQUIRE(error_of([&] { evaluate_node(*g, a, {&out, 1}); }).substr(0, 8) == "TSR-R022");
}

}  // namespace planner_test
