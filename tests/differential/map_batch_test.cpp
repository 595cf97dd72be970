// SPDX-License-Identifier: Apache-2.0
// A batch that is computed item by item, with the kernels of the cpu backend: what it gives is what the whole batch gives on
// the reference.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

std::vector<char> random_f32(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = uniform(random);
  std::vector<char> out(v.size() * 4);
  std::memcpy(out.data(), v.data(), out.size());
  return out;
}

std::string weights(const std::string& sizes, int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string out = "constant {value = dense<f32[" + sizes + "]: [";
  for (int64_t i = 0; i < n; ++i) {
    char text[32];
    std::snprintf(text, sizeof text, i ? ", %.6f" : "%.6f",
                  static_cast<double>(static_cast<int64_t>(random() % 129) - 64) / 64);
    out += text;
  }
  return out + "]>}\n";
}

int64_t elements(const e::Tensor& t) {
  int64_t n = 1;
  for (uint32_t d = 0; d < t.desc().rank; ++d) n *= t.desc().sizes[d];
  return n;
}

void compare(const std::string& text, const std::vector<e::Tensor>& in, size_t scans) {
  const std::vector<e::Tensor> want = compile(text, "reference").run(in);
  for (const std::string& cpu : cpu_backends()) {
    INFO(cpu);
    const e::Executable tested = compile(text, "cpu+fuse+map" + cpu.substr(3));
    size_t found = 0;
    constexpr const char* kScan = "\"op\":\"scan\"";
    const std::string description = tested.describe();
    for (size_t at = description.find(kScan); at != description.npos; at = description.find(kScan, at + 1)) ++found;
    CHECK(found == scans);
    for (int call = 0; call < 2; ++call) {  // the second takes what the first left behind
      const std::vector<e::Tensor> got = tested.run(in);
      REQUIRE(got.size() == want.size());
      for (size_t k = 0; k < got.size(); ++k) {
        // Sums of a few hundred products, in another order: relative to the largest of them.
        float largest = 0, difference = 0;
        for (int64_t i = 0; i < elements(want[k]); ++i) {
          const float g = load_as<float>(TSR_F32, got[k].data(), i), w = load_as<float>(TSR_F32, want[k].data(), i);
          largest = std::max(largest, std::abs(w));
          difference = std::isnan(g) ? INFINITY : std::max(difference, std::abs(g - w));
        }
        CHECK(largest > 0);
        CHECK(difference <= 2e-6f * largest);
      }
    }
  }
}

}  // namespace

TEST_CASE("a batch of images, item by item") {
  for (const int64_t items : {2, 3, 5}) {
    const std::string n = std::to_string(items);
    const std::string text = "graph @g(%x: f32[" + n + ", 4, 9, 9]) {\n  %w = " + weights("8, 4, 3, 3", 288, 1) +
                             "  %b = " + weights("8", 8, 2) + "  %v = " + weights("8, 8, 1, 1", 64, 3) +
                             "  %u = " + weights("8, 1, 3, 3", 72, 4) + "  %f = " + weights("5, 8", 40, 5) + R"(
  %c = conv %x, %w, %b {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}
  %r = relu %c
  %d = conv %r, %v, %b {strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
  %a = add %d, %r
  %s = relu %a
  %e = conv %s, %u {strides = [2, 2], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1], groups = 8}
  %p, %i = max_pool %e {kernel = [2, 2], strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}
  %m = mean %p {axes = [2, 3]}
  %y = linear %m, %f
  return %y, %s
}
)";
    const std::vector<int64_t> sizes = {items, 4, 9, 9};
    for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced})
      compare(text, {arrange(TSR_F32, sizes, random_f32(items * 4 * 81, 7), layout)}, 1);
  }
}

TEST_CASE("a batch of sequences, item by item") {
  const std::string text = "graph @g(%x: f32[4, 24, 32], %bias: f32[32]) {\n  %q = " + weights("32, 32", 1024, 1) +
                           "  %k = " + weights("32, 32", 1024, 2) + R"(
  %xb = add %x, %bias
  %ql = linear %xb, %q
  %kl = linear %xb, %k
  %q1 = reshape %ql {shape = [4, 24, 2, 16]}
  %k1 = reshape %kl {shape = [4, 24, 2, 16]}
  %q2 = transpose %q1 {perm = [0, 2, 1, 3]}
  %k2 = transpose %k1 {perm = [0, 2, 1, 3]}
  %a = attention %q2, %k2, %q2 {causal = true}
  %a1 = transpose %a {perm = [0, 2, 1, 3]}
  %a2 = reshape %a1 {shape = [4, 24, 32]}
  %s = add %a2, %x
  %n = layer_norm %s
  %o = linear %n, %q
  %g = gelu %o
  %all = mean %g {axes = [0]}
  %c = sub %g, %all
  %z = linear %c, %k
  return %z, %n
}
)";
  compare(text,
          {arrange(TSR_F32, {4, 24, 32}, random_f32(4 * 24 * 32, 3), Layout::Dense),
           arrange(TSR_F32, {32}, random_f32(32, 4), Layout::Dense)},
          2);
}

TEST_CASE("of the turns of a scan that fail, the first is the error of the call") {
  const e::Executable tested = compile(R"(graph @g(%is: i64[6, 1], %t: f32[3, 16]) {
  %a = scan %is, %t {carried = 0, scanned = 1, length = 6} : f32[6, 1, 16]
    region(%i: i64[1], %x: f32[3, 16]) {
      %g = gather %x, %i {axis = 0}
      return %g
    }
  return %a
}
)",
                                       "eager");
  const e::Tensor table = arrange(TSR_F32, {3, 16}, random_f32(48, 1), Layout::Dense);
  const auto run = [&](const std::vector<int64_t>& at) {
    std::vector<char> bytes(at.size() * 8);
    std::memcpy(bytes.data(), at.data(), bytes.size());
    return tested.run(std::vector<e::Tensor>{arrange(TSR_I64, {6, 1}, bytes, Layout::Dense), table});
  };
  CHECK_THROWS_WITH(run({0, 7, 0, 0, 9, 0}), Catch::Contains("index 7 is out of range"));
  CHECK_THROWS_WITH(run({0, 0, 0, 0, 0, 8}), Catch::Contains("index 8 is out of range"));
  const std::vector<e::Tensor> out = run({0, 1, 2, 2, 1, 0});
  CHECK(std::memcmp(static_cast<const char*>(out[0].data()) + 2 * 64, static_cast<const char*>(table.data()) + 2 * 64, 64) ==
        0);
}

}  // namespace tessera::differential
