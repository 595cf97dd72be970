// SPDX-License-Identifier: Apache-2.0
// Attention in one kernel on matrix instructions, against the reference's decomposition: drawn shapes, masks and lengths.
#include <catch2/catch.hpp>
#include <random>

#include "support.hpp"

using namespace tessera::test;

namespace {

struct Drawn {
  std::string text;  // over f32 tensors, which are rounded inside
  std::vector<std::vector<int64_t>> sizes;
};

std::string shape(const std::vector<int64_t>& sizes) {
  std::string out = "f32[";
  for (size_t i = 0; i < sizes.size(); ++i) out += (i ? ", " : "") + std::to_string(sizes[i]);
  return out + "]";
}

Drawn draw(std::mt19937_64& r) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(r() % static_cast<uint64_t>(high - low + 1));
  };
  const std::string type = r() % 2 ? "bf16" : "f16";
  const int64_t heads = between(1, 2) * 2, key_heads = r() % 3 == 0 ? heads / 2 : heads, l = between(1, 90), s = between(1, 90),
                depth = 16 * between(1, 3), width = 8 * between(1, 5);
  const bool causal = r() % 3 == 0;
  Drawn d;
  d.sizes = {{1, heads, l, depth}, {1, key_heads, s, depth}, {1, key_heads, s, width}};
  std::string mask = "_", more;
  switch (r() % 4) {
    case 0: d.sizes.push_back({1, 1, 1, s}), mask = "%mt", more = "  %mt = cast %m {dtype = " + type + "}\n"; break;
    case 1: d.sizes.push_back({heads, l, 1}), mask = "%mt", more = "  %z = sub %m, %m\n  %mt = gt %m, %z\n"; break;
    case 2: d.sizes.push_back({l, s}), mask = "%mt", more = "  %mt = cast %m {dtype = " + type + "}\n"; break;
    default: break;
  }
  static const char* const names[] = {"q", "k", "v", "m"};
  d.text = "graph @g(";
  for (size_t i = 0; i < d.sizes.size(); ++i) d.text += (i ? ", %" : "%") + std::string(names[i]) + ": " + shape(d.sizes[i]);
  d.text += ") {\n";
  for (size_t i = 0; i < 3; ++i)
    d.text += std::string("  %") + names[i] + "t = cast %" + names[i] + " {dtype = " + type + "}\n";
  d.text += more + "  %y = attention %qt, %kt, %vt, " + mask + " {causal = " + (causal ? "true" : "false") +
            (r() % 2 ? ", scale = 0.3" : "") + "}\n  %o = cast %y {dtype = f32}\n  return %o\n}\n";
  return d;
}

std::string on_device(std::string text) {
  for (size_t at = 0; (at = text.find(']', at)) < text.find(") {"); at += 8) text.insert(at + 1, "@cuda:0");
  return text;
}

const e::Context& own() {
  static const e::Context c =
      make_context((hardware() ? "" : kFakeOptions.substr(0, kFakeOptions.find("cudnn"))) + "cudnn = \"off\"\n");
  return c;
}

}  // namespace

TEST_CASE("attention of drawn shapes, masks and types is one kernel with the reference's numbers") {
  std::mt19937_64 r(11);
  for (int number = 0; number < 12; ++number) {
    const Drawn d = draw(r);
    INFO(d.text);
    const e::Executable device = compile(own(), on_device(d.text)), reference = compile(host(), d.text);
    CHECK(device.plan().find("cuda.attention") != std::string::npos);
    std::vector<e::Tensor> in, want;
    for (size_t i = 0; i < d.sizes.size(); ++i) {
      want.push_back(numbers(d.sizes[i], 10 * static_cast<uint64_t>(number) + i));
      in.push_back(want.back().copy_to(gpu()));
    }
    CHECK(difference(device.run(in)[0], reference.run(want)[0]) < 1e-2);
  }
}

TEST_CASE("attention takes lengths that only the call knows, none of them too") {
  const std::string text = R"(graph @g(%q: f32[2, s0, 32], %k: f32[2, s1, 32], %v: f32[2, s1, 16]) {
    %qt = cast %q {dtype = bf16}
    %kt = cast %k {dtype = bf16}
    %vt = cast %v {dtype = bf16}
    %y = attention %qt, %kt, %vt, _ {causal = true}
    %o = cast %y {dtype = f32}
    return %o
  })";
  const e::Executable device = compile(own(), on_device(text)), reference = compile(host(), text);
  CHECK(device.plan().find("cuda.attention") != std::string::npos);
  for (const auto& [l, s] : {std::pair<int64_t, int64_t>{5, 7}, {64, 64}, {70, 130}, {3, 0}, {0, 3}, {1, 65}}) {
    const std::vector<std::vector<int64_t>> sizes = {{2, l, 32}, {2, s, 32}, {2, s, 16}};
    std::vector<e::Tensor> in, want;
    for (uint64_t i = 0; i < 3; ++i) {
      want.push_back(numbers(sizes[i], i));
      in.push_back(want.back().copy_to(gpu()));
    }
    INFO(l << " queries, " << s << " keys");
    CHECK(difference(device.run(in)[0], reference.run(want)[0]) < 1e-2);
  }
}

TEST_CASE("attention reads heads where they lie in a tensor of queries, keys and values, without a copy") {
  // Heads of the fused projection, and one of an odd stride, which takes loads of single elements.
  for (const int64_t pad : {0, 3}) {
    const std::string text = attention_of_projection(70, pad, "  %o = cast %y {dtype = f32}\n  return %o\n");
    const e::Executable device = compile(own(), on_device(text)), reference = compile(host(), text);
    INFO(device.plan());
    CHECK(device.plan().find("cuda.attention") != std::string::npos);
    CHECK(device.plan().find("copy ") == std::string::npos);
    const e::Tensor x = numbers({2, 70, 3 * 64 + pad}, 4);
    CHECK(difference(device.run(std::vector<e::Tensor>{x.copy_to(gpu())})[0], reference.run(std::vector<e::Tensor>{x})[0]) <
          1e-2);
  }
}

TEST_CASE("the gradient of attention is two kernels with the reference's numbers, sums of exponentials included") {
  struct Case {
    std::string type;
    int64_t heads, key_heads, l, s, depth, width;
    bool causal;
    int mask;  // 0: none, 1: added, 2: bool
  };
  const Case cases[] = {{"bf16", 4, 2, 70, 70, 32, 16, true, 0},
                        {"f16", 2, 2, 20, 130, 16, 32, false, 1},
                        {"bf16", 2, 1, 65, 3, 48, 48, false, 2},
                        {"bf16", 2, 2, 3, 70, 16, 16, true, 0},
                        {"f16", 2, 2, 130, 20, 16, 16, true, 2}};
  uint64_t seed = 100;
  for (const Case& c : cases) {
    const std::vector<int64_t> q{2, c.heads, c.l, c.depth}, k{2, c.key_heads, c.s, c.depth}, v{2, c.key_heads, c.s, c.width},
        y{2, c.heads, c.l, c.width}, row{2, c.heads, c.l}, mask{c.l, c.s};
    std::vector<std::vector<int64_t>> sizes{q, k, v, y, row};
    std::string text =
        "graph @g(%q: " + shape(q) + ", %k: " + shape(k) + ", %v: " + shape(v) + ", %dy: " + shape(y) + ", %dl: " + shape(row);
    if (c.mask) {
      text += ", %m: " + shape(mask);
      sizes.push_back(mask);
    }
    text += ") {\n";
    for (const char* name : {"q", "k", "v", "dy"})
      text += std::string("  %") + name + "t = cast %" + name + " {dtype = " + c.type + "}\n";
    if (c.mask == 1) text += "  %mt = cast %m {dtype = " + c.type + "}\n";
    if (c.mask == 2) text += "  %z = sub %m, %m\n  %mt = gt %m, %z\n";
    const std::string operands = std::string("%qt, %kt, %vt, ") + (c.mask ? "%mt" : "_"),
                      attrs = std::string(" {causal = ") + (c.causal ? "true" : "false") + ", scale = 0.4}\n";
    text += "  %y, %lse = attention_lse " + operands + attrs;
    // Queries that see no key have an lse of -inf, which no comparison of differences takes: its exponential is compared.
    text += "  %l = exp %lse\n  %wide = cast %y {dtype = f32}\n";
    // Both sides get one delta: made of y, it would carry the rounding of y.
    text += "  %a, %b, %c = attention_backward %dyt, " + operands + ", %lse, %dl" + attrs;
    text += "  %aw = cast %a {dtype = f32}\n  %bw = cast %b {dtype = f32}\n  %cw = cast %c {dtype = f32}\n";
    text += "  return %wide, %l, %aw, %bw, %cw\n}\n";
    INFO(text);
    const e::Executable device = compile(own(), on_device(text)), reference = compile(host(), text);
    INFO(device.plan());
    CHECK(device.plan().find("cuda.attention_lse") != std::string::npos);
    CHECK(device.plan().find("cuda.attention_backward") != std::string::npos);
    std::vector<e::Tensor> in, want;
    for (const auto& s : sizes) {
      want.push_back(numbers(s, seed++));
      in.push_back(want.back().copy_to(gpu()));
    }
    const std::vector<e::Tensor> got = device.run(in), expected = reference.run(want);
    for (size_t i = 0; i < got.size(); ++i) {
      INFO("result " << i);
      CHECK(difference(got[i], expected[i]) < (i == 1 ? 1e-4 : 2e-2));
    }
  }
}
