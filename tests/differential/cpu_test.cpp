// SPDX-License-Identifier: Apache-2.0
// What the cpu backend does with constants: weights are packed when the graph is compiled. The same numbers as inputs go
// another way, and the reference says what is right.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cpu_models.hpp"

namespace tessera::differential {

TEST_CASE("products with constant weights are exact where sums are") {
  const Model models[] = {
      {"linear", "", {3, 7, 50}, {37, 50}, {37}},
      {"linear", "", {1, 130}, {65, 130}, {}},
      {"matmul", "", {33, 64}, {64, 70}, {}},
      {"matmul", "", {2, 5, 64}, {64, 40}, {}},
      {"dot_general", "{lhs_contract = [0, 2], rhs_contract = [1, 0]}", {4, 9, 6}, {6, 4, 35}, {}},
  };
  for (const Model& m : models) {
    check(m, "f32", TSR_F32);
    check(m, "f16", TSR_F16);
    check(m, "bf16", TSR_BF16);
  }
}

TEST_CASE("what follows a product or convolution has the bits that it has alone") {
  struct Group {
    const char* kernel;
    std::vector<int64_t> x, r;
    const char* text;  // X, R: types of the inputs
  };
  const Group groups[] = {
      {"cpu.conv.add.relu",
       {2, 5, 9, 11},
       {2, 13, 9, 11},
       "  %w = constant {value = dense<f32[13, 5, 3, 3]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n"
       "  %a = add %c, %r\n  %y = relu %a\n"},
      {"cpu.conv.add.relu.rows",
       {5, 112, 3, 3},
       {5, 120, 3, 3},
       "  %w = constant {value = dense<f32[120, 112, 3, 3]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [2, 2]}\n"
       "  %a = add %c, %r\n  %y = relu %a\n"},
      {"cpu.conv.add.hardswish.winograd",
       {2, 40, 15, 31},
       {2, 72, 15, 31},
       "  %w = constant {value = dense<f32[72, 40, 3, 3]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n"
       "  %a = add %c, %r\n  %y = hardswish %a\n"},
      {"cpu.conv.add.relu",
       {2, 5, 8, 16},
       {2, 31, 8, 16},
       "  %w = constant {value = dense<f32[31, 5, 3, 3]: splat 0.375>}\n  %b = constant {value = dense<f32[31]: splat "
       "-0.75>}\n"
       "  %c = conv %x, %w, %b {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n"
       "  %a = add %c, %r\n  %y = relu %a\n"},
      {"cpu.conv.relu",
       {2, 24, 8, 16},
       {1},
       "  %w = constant {value = dense<f32[40, 24, 1, 1]: splat 0.125>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n"
       "  %y = relu %c\n"},
      {"cpu.conv.add",
       {2, 24, 8, 16},
       {2, 40, 8, 16},
       "  %w = constant {value = dense<f32[40, 24, 1, 1]: splat 0.125>}\n  %b = constant {value = dense<f32[40]: splat 0.25>}\n"
       "  %c = conv %x, %w, %b {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n"
       "  %y = add %c, %r\n"},
      {"cpu.conv.depthwise.hardswish.mul",
       {1, 6, 14, 14},
       {1, 6, 7, 7},
       "  %w = constant {value = dense<f32[6, 1, 3, 3]: splat -0.625>}\n"
       "  %c = conv %x, %w, _ {strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 6}\n"
       "  %a = hardswish %c\n  %y = mul %r, %a\n"},
      {"cpu.conv.depthwise.relu",
       {1, 6, 20, 37},
       {1},
       "  %w = constant {value = dense<f32[6, 1, 3, 3]: splat -0.625>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 6}\n"
       "  %y = relu %c\n"},
      {"cpu.conv.depthwise.hardswish",
       {2, 3, 15, 16},
       {1},
       "  %w = constant {value = dense<f32[3, 1, 5, 5]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [1, 1], groups = 3}\n"
       "  %y = hardswish %c\n"},
      {"cpu.conv.depthwise.add.relu",
       {2, 3, 15, 33},
       {2, 3, 15, 33},
       "  %w = constant {value = dense<f32[3, 1, 3, 3]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 3}\n"
       "  %a = add %c, %r\n  %y = relu %a\n"},
      {"cpu.conv.add",
       {2, 5, 9, 11},
       {2, 13, 9, 11},
       "  %w = constant {value = dense<f32[13, 5, 3, 3]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n"
       "  %y = add %c, %r\n"},
      {"cpu.conv.hardswish",
       {2, 24, 7, 9},
       {1},
       "  %w = constant {value = dense<f32[40, 24, 1, 1]: splat 0.125>}\n  %b = constant {value = dense<f32[40]: splat "
       "-0.75>}\n"
       "  %c = conv %x, %w, %b {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n"
       "  %y = hardswish %c\n"},
      {"cpu.conv.relu",
       {1, 5, 9, 31},
       {1},
       "  %w = constant {value = dense<f32[13, 5, 3, 3]: splat 0.375>}\n"
       "  %c = conv %x, %w, _ {strides = [2, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n"
       "  %y = relu %c\n"},
      {"cpu.conv.mul.clamp",
       {2, 24, 7, 7},
       {40, 1, 1},
       "  %w = constant {value = dense<f32[40, 24, 1, 1]: splat 0.125>}\n  %lo = constant {value = dense<f32[]: -0.5>}\n"
       "  %hi = constant {value = dense<f32[]: 1.5>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n"
       "  %a = mul %c, %r\n  %y = clamp %a, %lo, %hi\n"},
      {"cpu.conv.add.relu",
       {3, 40, 1, 1},
       {21, 1, 1},
       "  %w = constant {value = dense<f32[21, 40, 1, 1]: splat 0.125>}\n"
       "  %c = conv %x, %w, _ {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n"
       "  %a = add %c, %r\n  %y = relu %a\n"},
      {"cpu.linear.add.relu",
       {37, 50},
       {37, 70},
       "  %w = constant {value = dense<f32[70, 50]: splat 0.25>}\n  %b = constant {value = dense<f32[70]: splat -0.75>}\n"
       "  %c = linear %x, %w, %b\n  %a = add %r, %c\n  %y = relu %a\n"},
      {"cpu.matmul.add.gelu",
       {3, 33, 90},
       {40},
       "  %w = constant {value = dense<f32[90, 40]: splat 0.0625>}\n  %c = matmul %x, %w\n  %a = add %c, %r\n"
       "  %y = gelu %a {approximate = \"none\"}\n"},
      {"cpu.linear.gelu_tanh",
       {37, 50},
       {1},
       "  %w = constant {value = dense<f32[70, 50]: splat 0.25>}\n  %b = constant {value = dense<f32[70]: splat -0.75>}\n"
       "  %c = linear %x, %w, %b\n  %y = gelu %c {approximate = \"tanh\"}\n"},
      {"cpu.matmul.add",
       {3, 33, 900},
       {40},
       "  %w = constant {value = dense<f32[900, 40]: splat 0.0625>}\n  %c = matmul %x, %w\n  %y = add %c, %r\n"},
  };
  for (const Group& group : groups) {
    const std::string text =
        "graph @g(%x: " + type("f32", group.x) + ", %r: " + type("f32", group.r) + ") {\n" + group.text + "  return %y\n}\n";
    INFO(text);
    const std::vector<float> x = values(group.x, 1), r = values(group.r, 2);
    std::vector<char> xs(x.size() * 4), rs(r.size() * 4);
    std::memcpy(xs.data(), x.data(), xs.size());
    std::memcpy(rs.data(), r.data(), rs.size());
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const std::string isa = backend.substr(backend.find(':') + 1);
      const e::Executable fused = compile(text, "cpu+fuse:" + isa), alone = compile(text, "cpu:" + isa);
      CHECK(fused.describe().find(group.kernel) != std::string::npos);
      for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced}) {
        const std::vector<e::Tensor> in = {arrange(TSR_F32, group.x, xs, layout), arrange(TSR_F32, group.r, rs, layout)};
        const e::Tensor got = fused.run(in)[0], want = alone.run(in)[0];
        REQUIRE(got.elements() == want.elements());
        CHECK(std::memcmp(got.data(), want.data(), static_cast<size_t>(want.elements()) * 4) == 0);
      }
    }
  }
}

TEST_CASE("the greatest of a window, with padding, NaN and infinities") {
  struct Pool {
    const char* attributes;
    std::vector<int64_t> x;
  };
  const Pool pools[] = {
      {"{kernel = [3, 3], strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}", {2, 5, 23, 37}},
      {"{kernel = [2, 3], strides = [1, 3], pad_low = [0, 1], pad_high = [1, 0], dilations = [2, 2]}", {1, 3, 9, 50}},
      {"{kernel = [2, 2], strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], ceil_mode = true}",
       {1, 2, 7, 7}},
      {"{kernel = [5], strides = [1], pad_low = [2], pad_high = [2], dilations = [1]}", {2, 2, 19}},
  };
  for (const Pool& pool : pools) {
    const std::string text =
        "graph @g(%x: " + type("f32", pool.x) + ") {\n  %y, %i = max_pool %x " + pool.attributes + "\n  return %y\n}\n";
    INFO(text);
    std::vector<float> v = values(pool.x, 1);
    for (size_t i = 0; i < v.size(); i += 13) v[i] = i % 3 == 0 ? std::nanf("") : i % 3 == 1 ? INFINITY : -INFINITY;
    std::vector<char> bytes(v.size() * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const e::Executable tested = compile(text, backend), reference = compile(text, "reference");
      CHECK(tested.describe().find("cpu.max_pool") != std::string::npos);
      for (const Layout layout : {Layout::Dense, Layout::Transposed}) {
        const std::vector<e::Tensor> in = {arrange(TSR_F32, pool.x, bytes, layout)};
        CHECK(different(TSR_F32, tested.run(in)[0], reference.run(in)[0]) == 0);
      }
    }
  }
}

TEST_CASE("depthwise convolutions are exact where sums are") {
  const Model models[] = {
      {"conv",
       "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 7}",
       {2, 7, 9, 35},
       {7, 1, 3, 3},
       {7}},
      {"conv",
       "{strides = [2, 2], pad_low = [1, 2], pad_high = [1, 2], dilations = [1, 1], groups = 4}",
       {1, 4, 40, 67},
       {4, 1, 3, 5},
       {}},
      {"conv",
       "{strides = [2, 2], pad_low = [2, 2], pad_high = [2, 2], dilations = [1, 1], groups = 5}",
       {1, 5, 14, 14},
       {5, 1, 5, 5},
       {}},
      {"conv",
       "{strides = [2, 3], pad_low = [0, 4], pad_high = [3, 0], dilations = [3, 2], groups = 3}",
       {3, 3, 11, 29},
       {6, 1, 2, 4},
       {6}},
      {"conv", "{strides = [2], pad_low = [1], pad_high = [0], dilations = [1], groups = 4}", {2, 4, 21}, {4, 1, 3}, {4}},
      {"conv",
       "{strides = [1, 1], pad_low = [3, 5], pad_high = [3, 5], dilations = [1, 1], groups = 2}",
       {1, 2, 1, 2},
       {2, 1, 4, 3},
       {2}},
      // Read where they lie: narrow and wide planes, fewer rows than a block and one more, padding on one side, wider than the
      // filter, and none.
      {"conv",
       "{strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [1, 1], groups = 6}",
       {2, 6, 7, 7},
       {6, 1, 5, 5},
       {6}},
      {"conv",
       "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 5}",
       {1, 5, 8, 8},
       {5, 1, 3, 3},
       {5}},
      {"conv",
       "{strides = [1, 1], pad_low = [4, 4], pad_high = [4, 4], dilations = [1, 1], groups = 3}",
       {1, 3, 3, 2},
       {3, 1, 5, 5},
       {}},
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], groups = 3}",
       {1, 3, 12, 21},
       {6, 1, 5, 5},
       {6}},
      {"conv",
       "{strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 5}",
       {1, 5, 14, 14},
       {5, 1, 3, 3},
       {5}},
      {"conv",
       "{strides = [2, 2], pad_low = [0, 1], pad_high = [1, 0], dilations = [1, 1], groups = 4}",
       {2, 4, 16, 17},
       {4, 1, 3, 3},
       {}},
      {"conv",
       "{strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 4}",
       {1, 4, 40, 67},
       {4, 1, 3, 3},
       {4}},
      {"conv",
       "{strides = [2, 2], pad_low = [2, 1], pad_high = [1, 2], dilations = [1, 1], groups = 3}",
       {1, 3, 31, 36},
       {3, 1, 5, 5},
       {3}},
      {"conv",
       "{strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], groups = 2}",
       {1, 2, 5, 6},
       {2, 1, 5, 5},
       {2}},
      // Two threads have bands of these planes: of 28 and 32 rows, and of 32 and 32.
      {"conv",
       "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 24}",
       {1, 24, 60, 36},
       {24, 1, 3, 3},
       {24}},
      {"conv",
       "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 24}",
       {1, 24, 64, 33},
       {24, 1, 3, 3},
       {24}},
  };
  for (const Model& m : models) check(m, "f32", TSR_F32, "depthwise");
}

TEST_CASE("convolutions with constant weights are exact where sums are") {
  const Model models[] = {
      {"conv",
       "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}",
       {2, 5, 9, 11},
       {13, 5, 3, 3},
       {13}},
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}",
       {1, 24, 7, 7},
       {40, 24, 1, 1},
       {}},
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}",
       {2, 500, 9, 11},
       {20, 500, 1, 1},
       {20}},
      // Several panels at once, the last not full; sums in two pieces, groups.
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}",
       {1, 520, 23, 31},
       {61, 520, 1, 1},
       {61}},
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1], groups = 2}",
       {3, 150, 12, 25},
       {130, 75, 1, 1},
       {}},
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}",
       {3, 40, 1, 1},
       {21, 40, 1, 1},
       {21}},
      {"conv",
       "{strides = [2, 2], pad_low = [3, 3], pad_high = [3, 3], dilations = [1, 1]}",
       {1, 3, 30, 33},
       {16, 3, 7, 7},
       {16}},
      {"conv",
       "{strides = [1, 2], pad_low = [0, 2], pad_high = [3, 1], dilations = [2, 3]}",
       {1, 4, 12, 20},
       {9, 4, 3, 2},
       {9}},
      {"conv",
       "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 3}",
       {2, 6, 8, 40},
       {24, 2, 3, 3},
       {24}},
      {"conv", "{strides = [1], pad_low = [2], pad_high = [1], dilations = [1]}", {2, 7, 45}, {10, 7, 4}, {10}},
      {"conv", "{strides = [1, 1], pad_low = [4, 4], pad_high = [4, 4], dilations = [1, 1]}", {1, 2, 3, 3}, {8, 2, 5, 5}, {8}},
  };
  for (const Model& m : models) check(m, "f32", TSR_F32);
}

TEST_CASE("convolutions that copy planes are exact where sums are") {
  const Model models[] = {
      {"conv",
       "{strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}",
       {2, 3, 30, 64},
       {16, 3, 3, 3},
       {16}},
      {"conv",
       "{strides = [2, 2], pad_low = [3, 3], pad_high = [3, 2], dilations = [1, 1]}",
       {1, 3, 29, 96},
       {20, 3, 7, 7},
       {}},
      // Half a panel is left; padding wider than the filter; another stride down than across, taps apart.
      {"conv", "{strides = [1, 1], pad_low = [4, 9], pad_high = [0, 9], dilations = [1, 1]}", {1, 2, 5, 32}, {9, 2, 3, 3}, {9}},
      {"conv",
       "{strides = [1, 3], pad_low = [0, 2], pad_high = [3, 1], dilations = [2, 2]}",
       {1, 4, 12, 48},
       {9, 4, 3, 3},
       {9}},
      // Sums in two pieces; one dimension; taps of one element.
      {"conv",
       "{strides = [1, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}",
       {1, 50, 1, 32},
       {64, 50, 3, 3},
       {64}},
      {"conv", "{strides = [2], pad_low = [1], pad_high = [1], dilations = [1]}", {2, 7, 64}, {10, 7, 4}, {10}},
      {"conv",
       "{strides = [2, 2], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}",
       {2, 5, 8, 64},
       {12, 5, 1, 1},
       {12}},
  };
  for (const Model& m : models) check(m, "f32", TSR_F32, ".planes");
}

TEST_CASE("convolutions whose positions are rows of the product are exact where sums are") {
  const Model models[] = {
      {"conv",
       "{strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [2, 2]}",
       {5, 112, 3, 3},
       {120, 112, 3, 3},
       {120}},
      {"conv",
       "{strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}",
       {5, 112, 6, 5},
       {120, 112, 3, 3},
       {}},
      {"conv",
       "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}",
       {5, 1000, 3, 3},
       {120, 1000, 1, 1},
       {120}},
  };
  for (const Model& m : models) check(m, "f32", TSR_F32, ".rows");
}

TEST_CASE("a graph of symbolic sizes is compiled once and right for every size") {
  const std::string text =
      "graph @g(%x: f32[s0, s1], %w: f32[s1], %m: f32[s1, 40]) {\n"
      "  %n = layer_norm %x, %w, %w {axis = -1}\n"
      "  %g = gelu %n\n"
      "  %p = matmul %g, %m\n"
      "  %s = softmax %p {axis = -1}\n"
      "  %t = transpose %x {perm = [1, 0]}\n"
      "  %c = reduce_sum %t {axes = [1]}\n"
      "  %y = mul %c, %w\n"
      "  return %s, %y\n}\n";
  for (const std::string& backend : cpu_backends()) {
    const e::Executable tested = compile(text, backend), reference = compile(text, "reference");
    for (const auto& [rows, cols] :
         {std::pair<int64_t, int64_t>{1, 1}, {2, 3}, {3, 16}, {5, 17}, {31, 64}, {7, 1000}, {130, 33}}) {
      INFO(backend << " " << rows << " x " << cols);
      std::vector<e::Tensor> in;
      for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{rows, cols}, {cols}, {cols, 40}}) {
        const std::vector<float> v = values(sizes, in.size() + 1);
        std::vector<char> bytes(v.size() * 4);
        std::memcpy(bytes.data(), v.data(), bytes.size());
        in.push_back(arrange(TSR_F32, sizes, bytes, Layout::Dense));
      }
      const std::vector<e::Tensor> got = tested.run(in), want = reference.run(in);
      for (size_t r = 0; r < want.size(); ++r) {
        double worst = 0;
        for (int64_t i = 0; i < want[r].elements(); ++i)
          worst = std::max(worst, std::abs(static_cast<double>(load_as<float>(TSR_F32, got[r].data(), i)) -
                                           static_cast<double>(load_as<float>(TSR_F32, want[r].data(), i))));
        // Probabilities are as far off as their logits, sums of up to 1000 products in f32; the sums of columns are exact.
        CHECK(worst <= (r == 0 ? 1e-4 : 0.0));
      }
    }
  }
}

TEST_CASE("attention with queries in lanes") {
  struct Attention {
    std::vector<int64_t> q, k, v, mask;  // mask: empty for none
    const char* mask_type;
    const char* attributes;
  };
  const Attention cases[] = {
      {{2, 3, 64, 32}, {2, 3, 64, 32}, {2, 3, 64, 32}, {}, "", ""},
      {{1, 2, 197, 64}, {1, 2, 197, 64}, {1, 2, 197, 64}, {}, "", "{scale = 0.25}"},
      {{1, 4, 33, 16}, {1, 4, 33, 16}, {1, 4, 33, 5}, {}, "", "{causal = true}"},
      {{1, 1, 70, 8}, {1, 1, 1300, 8}, {1, 1, 1300, 40}, {}, "", ""},  // sums are corrected twice
      {{1, 1, 1100, 8}, {1, 1, 1100, 8}, {1, 1, 1100, 8}, {}, "", "{causal = true}"},
      {{1, 6, 9, 12}, {1, 2, 11, 12}, {1, 2, 11, 12}, {}, "", ""},  // three heads share one
      {{2, 2, 40, 16}, {2, 2, 50, 16}, {2, 2, 50, 16}, {2, 1, 1, 50}, "f32", ""},
      {{2, 2, 40, 16}, {2, 2, 50, 16}, {2, 2, 50, 16}, {40, 50}, "f32", ""},
      {{2, 2, 40, 16}, {2, 2, 50, 16}, {2, 2, 50, 16}, {2, 1, 40, 50}, "bool", ""},
      {{2, 2, 40, 16}, {2, 2, 50, 16}, {2, 2, 50, 16}, {2, 2, 1, 50}, "bool", "{causal = true}"},
      {{2, 2, 40, 16}, {2, 2, 700, 16}, {2, 2, 700, 16}, {2, 1, 40, 1}, "bool", ""},  // some queries see nothing
      {{12, 7}, {9, 7}, {9, 3}, {}, "", ""},
      {{2, 16, 4}, {2, 0, 4}, {2, 0, 4}, {}, "", ""},
  };
  for (const uint32_t dtype : {TSR_F32, TSR_BF16, TSR_F16})
    for (const Attention& a : cases) {
      if (dtype != TSR_F32 && a.k[a.k.size() - 2] > 1000) continue;  // the reference takes long
      const std::string name = dtype == TSR_F32 ? "f32" : dtype == TSR_BF16 ? "bf16" : "f16";
      const size_t width = dtype == TSR_F32 ? 4 : 2;
      const bool masked = !a.mask.empty(), flags = std::string(a.mask_type) == "bool";
      const std::string text = "graph @g(%q: " + type(name, a.q) + ", %k: " + type(name, a.k) + ", %v: " + type(name, a.v) +
                               (masked ? ", %m: " + type(flags ? "bool" : name, a.mask) : "") +
                               ") {\n  %y = attention %q, %k, %v, " + (masked ? "%m " : "_ ") + a.attributes +
                               "\n  return %y\n}\n";
      INFO(text);
      for (const std::string& backend : cpu_backends()) {
        INFO(backend);
        const e::Executable tested = compile(text, backend), reference = compile(text, "reference");
        CHECK(tested.describe().find("cpu.attention") != std::string::npos);
        for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced}) {
          std::vector<e::Tensor> in;
          for (const std::vector<int64_t>* sizes : {&a.q, &a.k, &a.v}) {
            const std::vector<float> x = values(*sizes, in.size() + 1);
            std::vector<char> bytes(x.size() * width);
            for (size_t i = 0; i < x.size(); ++i) store_from(dtype, bytes.data(), static_cast<int64_t>(i), 4 * x[i]);
            in.push_back(arrange(dtype, *sizes, bytes, layout));
          }
          if (masked) {
            const std::vector<float> x = values(a.mask, 7);
            std::vector<char> bytes(x.size() * (flags ? 1 : width));
            for (size_t i = 0; i < x.size(); ++i)
              if (flags)
                bytes[i] = x[i] > 0;
              else
                store_from(dtype, bytes.data(), static_cast<int64_t>(i),
                           i % 3 == 0 ? -std::numeric_limits<float>::infinity() : x[i]);
            in.push_back(arrange(flags ? uint32_t{TSR_BOOL} : dtype, a.mask, bytes, layout));
          }
          const e::Tensor got = tested.run(in)[0], want = reference.run(in)[0];
          REQUIRE(got.elements() == want.elements());
          double worst = 0;
          for (int64_t i = 0; i < want.elements(); ++i) {
            const float g = load_as<float>(dtype, got.data(), i), w = load_as<float>(dtype, want.data(), i);
            // Both round once to a half: neighbours at most.
            const float apart = dtype == TSR_F32 ? 0.0f : std::abs(w) * (dtype == TSR_BF16 ? 0x1p-7f : 0x1p-10f);
            worst = std::max(worst, std::isnan(g) != std::isnan(w) ? 1.0
                                    : std::isnan(w)                ? 0.0
                                                                   : static_cast<double>(std::abs(g - w) - apart));
          }
          // Scores are exact. Two sums of as many terms as there are keys, half of them on top of each other, and some units of
          // exp and of the quotient; values are up to 4.
          CHECK(worst <= 4 * static_cast<double>(a.k[a.k.size() - 2] + 16) * 0x1p-24);
        }
      }
    }
}

TEST_CASE("the gradient of attention with queries in lanes") {
  struct Attention {
    std::vector<int64_t> q, k, v, mask;  // mask: empty for none
    const char* mask_type;
    const char* attributes;
  };
  const Attention cases[] = {
      {{2, 3, 64, 32}, {2, 3, 64, 32}, {2, 3, 64, 32}, {}, "", "{causal = true}"},
      {{1, 2, 197, 24}, {1, 2, 97, 24}, {1, 2, 97, 40}, {}, "", "{scale = 0.25}"},
      {{1, 1, 540, 8}, {1, 1, 540, 8}, {1, 1, 540, 5}, {}, "", "{causal = true}"},  // two blocks of keys
      {{1, 6, 9, 12}, {1, 2, 11, 12}, {1, 2, 11, 12}, {}, "", ""},                  // three heads share one
      {{2, 2, 40, 16}, {2, 2, 50, 16}, {2, 2, 50, 16}, {2, 1, 1, 50}, "T", ""},
      {{2, 2, 40, 16}, {2, 2, 50, 16}, {2, 2, 50, 16}, {40, 50}, "T", "{causal = true}"},
      {{2, 2, 40, 16}, {2, 2, 70, 16}, {2, 2, 70, 16}, {2, 1, 40, 1}, "bool", ""},  // some queries see nothing
      {{12, 7}, {9, 7}, {9, 3}, {}, "", ""},
      {{2, 16, 4}, {2, 0, 4}, {2, 0, 4}, {}, "", ""},
  };
  for (const uint32_t dtype : {TSR_F32, TSR_BF16, TSR_F16})
    for (const Attention& a : cases) {
      const std::string name = dtype == TSR_F32 ? "f32" : dtype == TSR_BF16 ? "bf16" : "f16";
      const bool masked = !a.mask.empty(), flags = std::string(a.mask_type) == "bool";
      std::vector<int64_t> dy = a.q;
      dy.back() = a.v.back();
      const std::string text = "graph @g(%q: " + type(name, a.q) + ", %k: " + type(name, a.k) + ", %v: " + type(name, a.v) +
                               ", %dy: " + type(name, dy) + (masked ? ", %m: " + type(flags ? "bool" : name, a.mask) : "") +
                               ") {\n  %y = attention %q, %k, %v, " + (masked ? "%m " : "_ ") + a.attributes +
                               "\n  %dq, %dk, %dv = grad %y, %dy, %q, %k, %v {outputs = 1, seeded = true}\n"
                               "  return %y, %dq, %dk, %dv\n}\n";
      INFO(text);
      const e::Executable reference = compile(text, "reference");
      for (const std::string& backend : cpu_backends()) {
        INFO(backend);
        const e::Executable tested = compile(text, backend);
        CHECK(tested.describe().find("cpu.attention_backward") != std::string::npos);
        for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced}) {
          std::vector<e::Tensor> in;
          for (const std::vector<int64_t>* sizes : {&a.q, &a.k, &a.v, static_cast<const std::vector<int64_t>*>(&dy), &a.mask}) {
            if (sizes == &a.mask && !masked) break;
            const std::vector<float> x = values(*sizes, in.size() + 1);
            const bool bytes_of_bool = sizes == &a.mask && flags;
            std::vector<char> bytes(x.size() * (bytes_of_bool ? 1 : dtype == TSR_F32 ? 4 : 2));
            for (size_t i = 0; i < x.size(); ++i)
              if (bytes_of_bool)
                bytes[i] = x[i] > 0;
              else
                store_from(dtype, bytes.data(), static_cast<int64_t>(i), 2 * x[i]);
            in.push_back(arrange(bytes_of_bool ? uint32_t{TSR_BOOL} : dtype, *sizes, bytes, layout));
          }
          const std::vector<e::Tensor> got = tested.run(in), want = reference.run(in);
          for (size_t r = 0; r < want.size(); ++r) {
            REQUIRE(got[r].elements() == want[r].elements());
            double worst = 0, largest = 0;
            for (int64_t i = 0; i < want[r].elements(); ++i) {
              const double g = load_as<double>(dtype, got[r].data(), i), w = load_as<double>(dtype, want[r].data(), i);
              REQUIRE(std::isfinite(g));
              worst = std::max(worst, std::abs(g - w));
              largest = std::max(largest, std::abs(w));
            }
            INFO("result " << r);
            // Halves: weights and gradients of scores are rounded in the reference, and only there; results once more.
            CHECK(worst <= largest * (dtype == TSR_F32 ? 2e-5 : dtype == TSR_BF16 ? 0x1p-6 : 0x1p-9));
          }
        }
      }
    }
}

TEST_CASE("attention of infinities and NaN") {
  const std::string text =
      "graph @g(%q: f32[16, 2], %k: f32[20, 2], %v: f32[20, 3]) {\n  %y = attention %q, %k, %v, _ {scale = 1.0}\n  return "
      "%y\n}\n";
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> q = values({16, 2}, 1), k = values({20, 2}, 2), v = values({20, 3}, 3);
  q[2 * 3] = nan, q[2 * 5] = inf, q[2 * 7 + 1] = -inf, q[2 * 9] = 3e38f;
  std::vector<e::Tensor> in;
  for (const auto& [sizes, x] :
       {std::pair<std::vector<int64_t>, std::vector<float>*>{{16, 2}, &q}, {{20, 2}, &k}, {{20, 3}, &v}}) {
    std::vector<char> bytes(x->size() * 4);
    std::memcpy(bytes.data(), x->data(), bytes.size());
    in.push_back(arrange(TSR_F32, sizes, bytes, Layout::Dense));
  }
  const e::Tensor want = compile(text, "reference").run(in)[0];
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const e::Tensor got = compile(text, backend).run(in)[0];
    for (int64_t i = 0; i < want.elements(); ++i) {
      INFO("element " << i);
      const float g = load_as<float>(TSR_F32, got.data(), i), w = load_as<float>(TSR_F32, want.data(), i);
      CHECK(std::isnan(g) == std::isnan(w));
      if (!std::isnan(w)) CHECK(std::abs(g - w) <= 2e-6f);
    }
  }
}

TEST_CASE("softmax of infinities and NaN") {
  // Rows that are reduced lane by lane, in columns, and one after the other; one kind of special number to a row, at its ends
  // and in the middle.
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const int64_t rows = 12, n = 70;
  for (const std::string op : {"softmax", "log_softmax"})
    for (const bool columns : {false, true}) {
      const std::vector<int64_t> sizes = columns ? std::vector<int64_t>{n, rows} : std::vector<int64_t>{rows, n};
      const std::string shape = "f32[" + std::to_string(sizes[0]) + ", " + std::to_string(sizes[1]) + "]";
      const std::string text =
          "graph @g(%x: " + shape + ") {\n  %y = " + op + " %x {axis = " + (columns ? "0" : "1") + "}\n  return %y\n}\n";
      std::vector<float> x = values({rows, n}, 4);
      const auto at = [&](int64_t row, int64_t i) -> float& {
        return x[static_cast<size_t>(columns ? i * rows + row : row * n + i)];
      };
      at(1, 0) = nan, at(2, 33) = nan, at(3, n - 1) = nan;
      at(4, 40) = inf, at(5, 1) = -inf, at(6, 17) = 3e38f;
      at(7, 5) = -inf, at(7, 6) = nan, at(8, 5) = inf, at(8, 66) = nan;
      for (int64_t i = 0; i < n; ++i) at(9, i) = -inf, at(10, i) = nan, at(11, i) = i == 3 ? 1.0f : -inf;
      std::vector<char> bytes(x.size() * 4);
      std::memcpy(bytes.data(), x.data(), bytes.size());
      const std::vector<e::Tensor> in{arrange(TSR_F32, sizes, bytes, Layout::Dense)};
      const e::Tensor want = compile(text, "reference").run(in)[0];
      int64_t nans = 0;
      for (const std::string& backend : cpu_backends()) {
        INFO(text << backend);
        const e::Tensor got = compile(text, backend).run(in)[0];
        for (int64_t i = 0; i < want.elements(); ++i) {
          INFO("element " << i);
          const float g = load_as<float>(TSR_F32, got.data(), i), w = load_as<float>(TSR_F32, want.data(), i);
          nans += std::isnan(w);
          CHECK(std::isnan(g) == std::isnan(w));
          if (std::isinf(w)) CHECK(g == w);
          if (std::isfinite(w)) CHECK(std::abs(g - w) <= 2e-6f * std::max(1.0f, std::abs(w)));
        }
        CHECK(nans >= 8 * n);  // rows 1 to 4 and 7 to 10
        nans = 0;
      }
    }
}

TEST_CASE("values round to bf16 alike, whatever instruction does it") {
  // By classes of bits: quiet and signalling NaN, infinities, subnormals, ties, what rounds up to infinity; then anything.
  // Vectors of numbers alone, and vectors with one of the others.
  std::vector<uint32_t> bits;
  std::mt19937_64 random(11);
  const uint32_t special[] = {0x7fc00000, 0xffc12345, 0x7f800001, 0xffffffff, 0x7f800000, 0xff800000,
                              0x00000001, 0x807fffff, 0x00400000, 0x00008000, 0x3f808000, 0x3f818000,
                              0x3f808001, 0x7f7fffff, 0xff7f8000, 0x80000000, 0x00000000, 0x00800000};
  for (const uint32_t s : special)
    for (int lane = 0; lane < 16; ++lane)
      for (int i = 0; i < 16; ++i) bits.push_back(i == lane ? s : 0x3f000000u + static_cast<uint32_t>(random() % 0x2000000));
  for (int i = 0; i < 4096 + 5; ++i) bits.push_back(static_cast<uint32_t>(random()));
  const auto n = static_cast<int64_t>(bits.size());
  std::vector<char> bytes(bits.size() * 4);
  std::memcpy(bytes.data(), bits.data(), bytes.size());
  const std::string text = "graph @g(%x: f32[" + std::to_string(n) + "]) {\n  %y = cast %x {dtype = bf16}\n  return %y\n}\n";
  const std::vector<e::Tensor> in = {arrange(TSR_F32, {n}, bytes, Layout::Dense)};
  const std::vector<e::Tensor> want = compile(text, "eager").run(in);
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const e::Executable tested = compile(text, backend);
    CHECK(tested.describe().find("cpu.cast") != std::string::npos);
    const std::vector<e::Tensor> got = tested.run(in);
    CHECK(std::memcmp(got[0].data(), want[0].data(), bits.size() * 2) == 0);
  }
}

TEST_CASE("generated kernels take no arena for inputs that are dense, and a copy of those that are not") {
  const std::string text =
      "graph @g(%x: f32[64, 64], %y: f32[64, 64], %z: f32[64, 64]) {\n  %a = exp %x\n  %b = mul %a, %y\n"
      "  %c = add %b, %z\n  return %c\n}\n";
  const std::vector<int64_t> sizes = {64, 64};
  std::vector<std::vector<char>> bytes;
  for (int i = 1; i <= 3; ++i) {
    const std::vector<float> v = values(sizes, i);
    bytes.emplace_back(reinterpret_cast<const char*>(v.data()), reinterpret_cast<const char*>(v.data() + v.size()));
  }
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const e::Executable fused = compile(text, "cpu+fuse:" + backend.substr(backend.find(':') + 1));
    CHECK(fused.describe().find("fused_exp_mul_add") != std::string::npos);
    CHECK(fused.describe().find("\"arena_bytes\":0") != std::string::npos);
    const auto arranged = [&](Layout x, Layout y) {
      return std::vector<e::Tensor>{arrange(TSR_F32, sizes, bytes[0], x), arrange(TSR_F32, sizes, bytes[1], y),
                                    arrange(TSR_F32, sizes, bytes[2], Layout::Dense)};
    };
    const e::Tensor want = fused.run(arranged(Layout::Dense, Layout::Dense))[0];
    for (const Layout x : {Layout::Dense, Layout::Transposed, Layout::Sliced})
      for (const Layout y : {Layout::Dense, Layout::Transposed, Layout::Sliced})
        CHECK(std::memcmp(fused.run(arranged(x, y))[0].data(), want.data(), bytes[0].size()) == 0);
  }
}

}  // namespace tessera::differential
