// SPDX-License-Identifier: Apache-2.0
// Random kernels of all forms through the interpreter of programs at both sizes of a wave: shapes, dtypes, operations and
// schedules drawn with a fixed seed, sizes symbolic in half of them.
#include <catch2/catch.hpp>

#include <random>

#include "share.hpp"
#include "simt_support.hpp"
#include "tessera/kit/program/interpret.hpp"
#include "tessera/kit/text.hpp"
#include "tessera/plugin.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

SimtCase draw(std::mt19937_64& r, int number) {
  const auto pick = [&](auto list) { return std::data(list)[r() % std::size(list)]; };
  const std::string t = pick(std::initializer_list<const char*>{"f32", "bf16", "f16", "i32", "f32"});
  const bool floating = t != "i32", symbolic = r() % 2 == 0;
  const int64_t rows = 1 + static_cast<int64_t>(r() % 30),
                columns = 1 + static_cast<int64_t>(r() % (r() % 2 ? 64 : 700)) * (r() % 2 ? 8 : 1);
  SimtCase c;
  c.name = "random" + std::to_string(number);
  // Rows of two axes whose order differs from operand to operand: of equal sizes, nothing but their strides tells them apart.
  const bool stacked = !symbolic && r() % 2 == 0, turned = r() % 5 < (stacked ? 4 : 1);
  const auto small = [&] { return std::to_string(2 + r() % 6); };
  const std::string outer = small(), inner = r() % 4 ? outer : small();
  const bool square = stacked && outer == inner;
  const std::string m = symbolic  ? "s0"
                        : stacked ? outer + ", " + inner
                                  : std::to_string(rows),
                    n = symbolic && r() % 2 ? "s1" : std::to_string(columns);
  const std::string turned_sizes = stacked ? inner + ", " + outer + ", " + n : n + ", " + m;
  std::string text = "graph @g(%x: " + t + "[" + (turned ? turned_sizes : m + ", " + n) + "], %y: " + t + "[" + m + ", " + n +
                     "], %b: " + t + "[" + n + "])";
  if (symbolic) {
    text += " symbols { s0: 0..";
    c.symbols = {rows};
    if (n == "s1") {
      text += "; s1: 1..";
      c.symbols.push_back(columns);
      // A promise of the launcher, where it holds.
      if (columns % 8 == 0 && r() % 2) c.multiples = {1, 8};
    }
    text += " }";
  }
  text += " {\n";
  std::string v = "%x";
  int next = 0;
  const auto put = [&](const std::string& e) {
    const std::string name = "%v" + std::to_string(next++);
    text += " " + name + " = " + e + "\n";
    return name;
  };
  if (turned) v = put(stacked ? "transpose %x {perm = [1, 0, 2]}" : "transpose %x {perm = [1, 0]}");
  for (uint64_t i = 0, steps = 1 + r() % 4; i < steps; ++i) {
    const std::string other = pick(std::initializer_list<const char*>{"%y", "%b", "%x", square ? "%x" : "%y"});
    if (r() % 2 == 0)
      v = put((floating ? pick(std::initializer_list<const char*>{"neg", "abs", "exp", "gelu", "relu", "sigmoid"}) : "neg") +
              std::string(" ") + v);
    else
      v = put(pick(std::initializer_list<const char*>{"add", "sub", "mul", "maximum"}) + std::string(" ") + v + ", " +
              (turned && !square && other == "%x" ? "%y" : other));
  }
  std::string results = v;
  const std::string last = stacked ? "2" : "1";
  switch (r() % 5) {
    case 0: break;
    case 1: results = put("reduce_sum " + v + " {axes = [" + last + "]}"); break;
    case 2: results = put("reduce_max " + v + " {axes = [0]}"); break;
    case 3: results = floating ? put("softmax " + v) : put("reduce_min " + v + " {axes = [" + last + "]}"); break;
    case 4: results = put("reduce_sum " + v + " {axes = [" + (r() % 2 ? "0" : last) + "], keepdims = true}"); break;
  }
  c.text = text + " return " + results + "\n}\n";
  return c;
}

}  // namespace

TEST_CASE("random kernels of the SIMT family") {
  std::mt19937_64 r(2024);
  const kit::SimtOrder order;
  size_t made = 0, refused = 0;
  for (size_t number = 0; number < share_of(200); ++number) {
    const SimtCase c = draw(r, static_cast<int>(number));
    INFO(c.text);
    SimtKernel k;
    try {
      k = lower_case(c);
    } catch (const kit::Unfit&) {
      continue;
    }
    const kit::GpuDescription& d = kit::gpu_description(number % 2 ? "sim32" : "sim64");
    const Data input = case_data(k, c, number, number % 2 == 0);  // where much is NaN, much is equal
    Data want = input;
    const uint32_t faults = judge(k, c, order, want);
    std::vector<kit::SimtSchedule> schedules;
    try {
      schedules = reachable(k, c, d, order, 4);
    } catch (const sdk::Error& e) {
      if (e.code != "TSR-K041") FAIL(e.what());
      ++refused;
      continue;
    }
    const kit::SimtSchedule s = schedules[r() % schedules.size()];
    kit::Program p = make(k, c, s, d, order);
    Data got = input;
    try {
      const uint32_t raised = kit::interpret(p, got.pointers(), c.symbols, r());
      REQUIRE(raised == faults);
    } catch (const sdk::Error& e) {
      FAIL(e.what() << "\n" << kit::to_text(s) << "\n" << kit::print(k.rows.kernel) << kit::print(p));
    }
    const std::string difference = case_difference(k, want, got);
    if (!difference.empty()) FAIL(difference << "\n" << kit::to_text(s) << "\n" << kit::print(k.rows.kernel) << kit::print(p));
    ++made;
  }
  CHECK(made > share_of(120));
  CHECK(refused < share_of(40));
}
