// SPDX-License-Identifier: Apache-2.0
// A depthwise convolution in one kernel with the convolution that makes its input: the bits of both alone, whatever the cut,
// and only where that input is nobody else's.
#include <algorithm>

#include "cpu_models.hpp"

namespace tessera::differential {

namespace {

struct Block {
  std::vector<int64_t> x;
  int64_t expanded;
  const char* between;  // an op, or empty
  int64_t taps, stride;
  bool bias;
  const char* behind;  // likewise; "add": of an input
  const char* kernel;
  std::vector<int64_t> low = {}, high = {};  // padding; empty: half of the taps
};

std::vector<int64_t> low_of(const Block& b) { return b.low.empty() ? std::vector<int64_t>(2, b.taps / 2) : b.low; }
std::vector<int64_t> high_of(const Block& b) { return b.high.empty() ? std::vector<int64_t>(2, b.taps / 2) : b.high; }

std::vector<int64_t> result_of(const Block& b) {
  const auto size = [&](size_t d) { return (b.x[2 + d] + low_of(b)[d] + high_of(b)[d] - b.taps) / b.stride + 1; };
  return {b.x[0], b.expanded, size(0), size(1)};
}

std::string text_of(const Block& b) {
  const auto pair = [](const std::vector<int64_t>& v) {
    return "[" + std::to_string(v[0]) + ", " + std::to_string(v[1]) + "]";
  };
  const std::vector<int64_t> w = {b.expanded, b.x[1], 1, 1}, f = {b.expanded, 1, b.taps, b.taps};
  std::string text = "graph @g(%x: " + type("f32", b.x) + ", %r: " + type("f32", result_of(b)) +
                     ") {\n  %w = " + literal("f32", w, values(w, 2)) + "\n  %f = " + literal("f32", f, values(f, 3)) + "\n";
  if (b.bias)
    text += "  %b = " + literal("f32", {b.expanded}, values({b.expanded}, 4)) +
            "\n  %d = " + literal("f32", {b.expanded}, values({b.expanded}, 5)) + "\n";
  text += "  %e = conv %x, %w, " + std::string(b.bias ? "%b" : "_") +
          " {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n";
  std::string last = "%e";
  if (*b.between) text += "  %m = " + std::string(b.between) + " %e\n", last = "%m";
  text += "  %c = conv " + last + ", %f, " + (b.bias ? "%d" : "_") + " {strides = " + pair({b.stride, b.stride}) +
          ", pad_low = " + pair(low_of(b)) + ", pad_high = " + pair(high_of(b)) +
          ", dilations = [1, 1], groups = " + std::to_string(b.expanded) + "}\n";
  last = "%c";
  if (*b.behind)
    text += "  %y = " + std::string(b.behind) + " %c" + (std::string(b.behind) == "add" ? ", %r" : "") + "\n", last = "%y";
  return text + "  return " + last + "\n}\n";
}

e::Tensor input(const std::vector<int64_t>& sizes, uint64_t seed, Layout layout) {
  const std::vector<float> v = values(sizes, seed);
  std::vector<char> bytes(v.size() * sizeof(float));
  std::memcpy(bytes.data(), v.data(), bytes.size());
  return arrange(TSR_F32, sizes, bytes, layout);
}

// `b.kernel`: empty, where it may not be taken.
void check(const Block& b, const std::vector<Layout>& layouts) {
  const std::string text = text_of(b);
  INFO(type("", b.x) << " " << b.expanded << " " << b.between << " " << b.taps << " " << b.stride << " " << b.behind);
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const std::string isa = backend.substr(backend.find(':') + 1);
    const e::Executable fused = compile(text, "cpu+fuse:" + isa), alone = compile(text, "cpu:" + isa);
    if (*b.kernel) CHECK((fused.describe().find(b.kernel) != std::string::npos) == (isa != "baseline"));
    for (const Layout layout : layouts) {
      const std::vector<e::Tensor> in = {input(b.x, 1, layout), input(result_of(b), 6, layout)};
      const e::Tensor got = fused.run(in)[0], want = alone.run(in)[0];
      REQUIRE(got.elements() == want.elements());
      CHECK(std::memcmp(got.data(), want.data(), static_cast<size_t>(want.elements()) * sizeof(float)) == 0);
    }
  }
}

}  // namespace

TEST_CASE("an expansion and the depthwise convolution behind it have the bits of both alone") {
  const Block blocks[] = {
      {{1, 16, 112, 112}, 64, "relu", 3, 2, true, "relu", ".relu.depthwise.relu"},  // bands of rows
      {{1, 24, 57, 59}, 72, "relu", 5, 2, true, "", ".relu.depthwise."},            // whose last one is smaller
      {{1, 40, 28, 28}, 120, "hardswish", 5, 1, true, "hardswish", ".hardswish.depthwise.hardswish"},  // groups of channels
      {{3, 8, 20, 37}, 34, "", 3, 1, false, "add", ".conv.depthwise.add.packed"},            // images; groups of few channels
      {{2, 80, 14, 14}, 97, "hardswish", 3, 1, false, "relu", ".hardswish.depthwise.relu"},  // channels that nothing divides
      {{1, 70, 14, 14}, 200, "relu", 5, 2, true, "hardswish", ".relu.depthwise.hardswish"},  // rows of fewer than 8 results
      {{1, 3, 5, 300}, 6, "relu", 3, 1, true, "", ".relu.depthwise."},                       // a long row
  };
  for (const Block& b : blocks) {
    check(b, {Layout::Dense, Layout::Transposed, Layout::Sliced});
  }
}

TEST_CASE("expansions of any size and padding have the bits of both convolutions alone") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    const auto up_to = [&](uint64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
    const char* const ops[] = {"", "relu", "hardswish", "add"};
    Block b{{1 + up_to(2), 1 + up_to(60), 1 + up_to(30), 1 + up_to(40)},
            2 + up_to(70),
            ops[up_to(2)],
            3 + 2 * up_to(1),
            1 + up_to(1),
            up_to(1) == 1,
            ops[up_to(3)],
            "",
            {up_to(5), up_to(5)},
            {up_to(5), up_to(5)}};
    for (size_t d = 0; d < 2; ++d) b.high[d] += std::max<int64_t>(0, b.taps - b.x[2 + d] - b.low[d] - b.high[d]);
    INFO("seed " << seed);
    check(b, {Layout::Dense});
  }
}

TEST_CASE("an expansion that others read, or that is no product of channels, stays alone") {
  const std::string head =
      "graph @g(%x: f32[1, 16, 28, 28], %f: f32[64, 1, 3, 3]) {\n"
      "  %w = constant {value = dense<f32[64, 16, 1, 1]: splat 0.125>}\n"
      "  %v = constant {value = dense<f32[64, 16, 3, 3]: splat 0.125>}\n"
      "  %k = constant {value = dense<f32[64, 1, 3, 3]: splat 0.25>}\n"
      "  %s = constant {value = dense<f32[64, 1, 3, 3]: splat 0.5>}\n";
  const std::string one = " {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}\n",
                    wide = " {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}\n",
                    depthwise = " {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 64}\n",
                    dilated = " {strides = [1, 1], pad_low = [2, 2], pad_high = [2, 2], dilations = [2, 2], groups = 64}\n";
  const std::string bodies[] = {
      "  %e = conv %x, %w, _" + one + "  %c = conv %e, %k, _" + depthwise + "  return %c, %e\n",                 // a result
      "  %e = conv %x, %w, _" + one + "  %c = conv %e, %k, _" + depthwise + "  %y = add %c, %e\n  return %y\n",  // read behind
      "  %e = conv %x, %w, _" + one + "  %c = conv %e, %k, _" + depthwise + "  %d = conv %e, %s, _" + depthwise +
          "  %y = add %c, %d\n  return %y\n",                                                  // read twice
      "  %e = conv %x, %w, _" + one + "  %c = conv %e, %f, _" + depthwise + "  return %c\n",   // weights that change
      "  %e = conv %x, %v, _" + wide + "  %c = conv %e, %k, _" + depthwise + "  return %c\n",  // several taps
      "  %e = conv %x, %w, _" + one + "  %c = conv %e, %k, _" + dilated + "  return %c\n",
  };
  for (const std::string& body : bodies) {
    const std::string text = head + body + "}\n";
    INFO(body);
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const std::string isa = backend.substr(backend.find(':') + 1);
      const e::Executable fused = compile(text, "cpu+fuse:" + isa), alone = compile(text, "cpu:" + isa);
      // Such a kernel has both names.
      CHECK(fused.describe().find(".conv.depthwise.packed") == std::string::npos);
      const std::vector<e::Tensor> in = {input({1, 16, 28, 28}, 1, Layout::Dense), input({64, 1, 3, 3}, 2, Layout::Dense)};
      const std::vector<e::Tensor> got = fused.run(in), want = alone.run(in);
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(std::memcmp(got[i].data(), want[i].data(), static_cast<size_t>(want[i].elements()) * sizeof(float)) == 0);
    }
  }
}

}  // namespace tessera::differential
