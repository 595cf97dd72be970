// SPDX-License-Identifier: Apache-2.0
// Every schedule that a search can reach computes the interpreter's bits.
#include <catch2/catch.hpp>

#include <algorithm>

#include "kit_support.hpp"
#include "tessera/kit/interpret.hpp"
#include "tessera/kit/schedule.hpp"
#include "tessera/kit/search.hpp"

using namespace tessera;
using namespace tessera::test;

namespace {

// Of all choices in any number of steps, the first so many.
std::vector<kit::Choice> reachable(kit::Kernel& k, const kit::Schedule& start, const kit::Device& device, size_t most) {
  std::vector<kit::Choice> out = {kit::choice_of(start)};
  for (size_t i = 0; i < out.size() && out.size() < most; ++i)
    for (int coordinate = 0; coordinate < kit::kCoordinates; ++coordinate)
      for (const kit::Choice& c : kit::neighbours(k, start, device, out[i], coordinate))
        if (std::find(out.begin(), out.end(), c) == out.end()) out.push_back(c);
  return out;
}

struct Searched {
  std::string graph;
  std::vector<int64_t> symbols;
  size_t least;  // choices beside the model's own that must be there
};

}  // namespace

TEST_CASE("schedules that a search reaches keep every bit") {
  const std::vector<Searched> cases = {
      {"graph @g(%x: f32[s0, 300], %b: f32[300]) symbols { s0: 1.. } {\n %a = add %x, %b\n %c = gelu %a\n return %c\n}\n",
       {7},
       3},
      {"graph @g(%x: bf16[9000]) {\n %c = silu %x\n return %c\n}\n", {}, 3},
      {"graph @g(%x: f64[70, 33]) {\n %a = exp %x\n return %a\n}\n", {}, 1},
      {"graph @g(%x: f32[5, 1000]) {\n %a = softmax %x {axis = -1}\n return %a\n}\n", {}, 1},
      {"graph @g(%x: f32[300, 40]) {\n %a = reduce_max %x {axes = [0]}\n %b = reduce_sum %x {axes = [0]}\n return %a, %b\n}\n",
       {},
       1},
      {"graph @g(%x: f32[64, 3000]) {\n %a = reduce_sum %x {axes = [0]}\n return %a\n}\n", {}, 1},
      {"graph @g(%x: f32[64, 200], %y: f32[64, 200]) {\n %a = mul %x, %y\n %b = exp %a\n %c = reduce_sum %b {axes = [0]}\n "
       "return %c\n}\n",
       {},
       1},
      {"graph @g(%x: f32[s1, s0], %y: f32[s0, s1]) symbols { s0: 1..; s1: 1.. } {\n %a = transpose %x {perm = [1, 0]}\n"
       " %c = add %a, %y\n return %c\n}\n",
       {130, 70},
       3},
      {"graph @g(%x: f32[256, 1024], %y: f32[1024, 256]) {\n %a = transpose %x {perm = [1, 0]}\n %c = add %a, %y\n return "
       "%c\n}\n",
       {},
       1},
  };
  std::mt19937_64 random(3);
  for (const Level& level : levels()) {
    kit::Device device;
    device.cores = 4;
    device.vector_bytes = level.vector_bytes;
    for (const Searched& c : cases) {
      INFO(c.graph << "vector bytes " << level.vector_bytes);
      const auto g = test::parse(c.graph);
      kit::Lowered first = lower_graph(*g, "k");
      const kit::Schedule start = kit::choose_schedule(first.kernel, device);
      const std::vector<kit::Choice> choices = reachable(first.kernel, start, device, 8);
      // Vectors of 16 bytes are one way only where rows are copied ahead.
      if (level.vector_bytes > 16) CHECK(choices.size() > c.least);
      kit::ModuleText module(kit::cpu_dialect());
      std::vector<kit::Lowered> kernels;
      for (size_t i = 0; i < choices.size(); ++i) {
        kernels.push_back(lower_graph(*g, "k" + std::to_string(i)));
        module.add(kernels.back().kernel, kit::with_choice(start, choices[i]));
      }
      const Compiled compiled(module.text(), level.flags);
      const Data input = make_data(first.kernel, c.symbols, 5, true);
      Data want = input;
      kit::interpret(first.kernel, want.pointers(), c.symbols);
      for (size_t i = 0; i < choices.size(); ++i) {
        INFO(kit::to_text(choices[i]));
        Data got = input;
        run_compiled(compiled, kernels[i].kernel.name, got, c.symbols, random);
        CHECK(difference(first.kernel, want, got) == "");
        CHECK(kit::parse_choice(kit::to_text(choices[i]), first.kernel, start, device) == choices[i]);
      }
    }
  }
}

TEST_CASE("a text that no search wrote is no choice") {
  const auto g = test::parse("graph @g(%x: f32[s0, 300]) symbols { s0: 1.. } {\n %c = gelu %x\n return %c\n}\n");
  kit::Lowered l = lower_graph(*g, "k");
  kit::Device device;
  device.vector_bytes = 32;
  const kit::Schedule start = kit::choose_schedule(l.kernel, device);
  const std::string own = kit::to_text(kit::choice_of(start));
  REQUIRE(kit::parse_choice(own, l.kernel, start, device));
  const std::vector<std::string> texts = {"",
                                          "width",
                                          "width 12 block 4096 tile 1 ahead 0",
                                          own + " 1",
                                          own + "x",
                                          "width 4096 block 4096 tile 1 ahead 0",
                                          "width -8 block 4096 tile 1 ahead 0",
                                          "width 16 block 4095 tile 1 ahead 0",
                                          "width 16 block 99999999999999999999 tile 1 ahead 0",
                                          "width 32 block 4096 tile 128 ahead 1"};
  for (const std::string& text : texts) {
    INFO(text);
    CHECK_FALSE(kit::parse_choice(text, l.kernel, start, device));
  }
}
