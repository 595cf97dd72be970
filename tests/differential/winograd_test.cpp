// SPDX-License-Identifier: Apache-2.0
// Convolutions by minimal filtering: of 2 x 2 results exact where sums are, of 4 x 4 with a known error, and as the reference
// where something is not finite.
#include <cmath>

#include "cpu_models.hpp"

namespace tessera::differential {

namespace {
const char* const padded = "{strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], dilations = [1, 1]}";
}

TEST_CASE("convolutions by minimal filtering are exact where sums are") {
  const Model models[] = {
      {"conv", padded, {1, 32, 15, 31}, {40, 32, 3, 3}, {40}},  // a last line and a last column of one result
      {"conv", padded, {3, 16, 5, 6}, {64, 16, 3, 3}, {}},      // several lines of blocks in one tile, across images
      {"conv", padded, {2, 520, 7, 8}, {64, 520, 3, 3}, {64}},  // sums in two pieces
      {"conv", padded, {1, 24, 60, 61}, {96, 24, 3, 3}, {96}},  // several tiles in one line
      {"conv",
       "{strides = [1, 1], pad_low = [0, 3], pad_high = [2, 0], dilations = [1, 1]}",
       {2, 48, 20, 33},
       {70, 48, 3, 3},
       {}},
  };
  for (const Model& m : models) check(m, "f32", TSR_F32, ".winograd2", "+2x2");
}

TEST_CASE("minimal filtering of larger blocks rounds two to three times as coarsely as sums of products") {
  const Model models[] = {
      {"conv", padded, {1, 64, 56, 56}, {64, 64, 3, 3}, {64}},  // whole lines fill the micro-kernels of AVX-512
      {"conv", padded, {1, 65, 28, 28}, {70, 65, 3, 3}, {}},    // two lines; two channels in a vector, and one is left
      {"conv",
       padded,
       {3, 64, 13, 15},
       {64, 64, 3, 3},
       {64}},  // a last line and a last column of less than a block, across images
      {"conv", padded, {1, 520, 14, 14}, {64, 520, 3, 3}, {64}},  // sums in two pieces
      {"conv", padded, {1, 40, 33, 90}, {96, 40, 3, 3}, {96}},    // several tiles in one line
      {"conv",
       "{strides = [1, 1], pad_low = [0, 3], pad_high = [2, 0], dilations = [1, 1]}",
       {2, 48, 20, 33},
       {70, 48, 3, 3},
       {}},
  };
  for (const Model& m : models) {
    INFO(m.attributes << " " << type("f32", m.x) << type("f32", m.w));
    const std::string text = text_of(m, "f32");
    const std::vector<float> v = values(m.x, 1);
    std::vector<char> bytes(v.size() * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    const std::vector<e::Tensor> in = {arrange(TSR_F32, m.x, bytes, Layout::Dense)};
    // Sums of multiples of 1/4096 below 2^12: exact in f32.
    const e::Tensor want = compile(text, "reference").run(in)[0];
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const e::Executable tested = compile(text, backend);
      CHECK(tested.describe().find(".winograd4") != std::string::npos);
      const e::Tensor got = tested.run(in)[0];
      double squares = 0, error_squares = 0, most = 0;
      for (int64_t i = 0; i < want.elements(); ++i) {
        const double y = load_as<float>(TSR_F32, want.data(), i), error = load_as<float>(TSR_F32, got.data(), i) - y;
        squares += y * y, error_squares += error * error, most = std::max(most, std::abs(error));
      }
      // Sums of all products in their order have 3.6e-7 (64 channels) to 6e-7 (256), and at most 3e-6.
      CHECK(std::sqrt(error_squares / squares) < 1.5e-6);
      CHECK(most / std::sqrt(squares / static_cast<double>(want.elements())) < 1.5e-5);
    }
  }
}

TEST_CASE("filters that are inputs are transformed by every run, and exact where sums are") {
  const struct {
    std::vector<int64_t> x, w;
  } sizes[] = {
      {{2, 32, 31, 30}, {40, 32, 3, 3}},    // a panel with few output channels, a last line and a last column of one result
      {{8, 67, 14, 14}, {64, 67, 3, 3}},    // channels beyond whole vectors
      {{3, 520, 15, 16}, {33, 520, 3, 3}},  // sums in two pieces, threads share channels
      {{4, 16, 20, 33}, {96, 16, 3, 3}},
  };
  const char* const bare = "{strides = [1, 1], pad_low = [0, 0], pad_high = [0, 0], dilations = [1, 1]}";
  for (size_t k = 0; k < 2 * std::size(sizes); ++k) {
    const auto& s = sizes[k / 2];
    const char* const attributes = k % 2 == 0 ? padded : bare;
    const std::string text = "graph @g(%x: " + type("f32", s.x) + ", %w: " + type("f32", s.w) + ") {\n  %c = conv %x, %w, _ " +
                             attributes + "\n  %y = relu %c\n  return %y\n}\n";
    INFO(attributes << " " << type("f32", s.x) << " " << type("f32", s.w));
    const auto tensor = [](const std::vector<int64_t>& of, uint64_t seed, float special, Layout layout) {
      std::vector<float> v = values(of, seed);
      if (special != 0) v[v.size() / 2] = special;
      std::vector<char> bytes(v.size() * 4);
      std::memcpy(bytes.data(), v.data(), bytes.size());
      return arrange(TSR_F32, of, bytes, layout);
    };
    for (const std::string& backend : cpu_backends()) {
      INFO(backend);
      const e::Executable tested = compile(text, backend), reference = compile(text, "reference");
      CHECK(tested.describe().find(".winograd2.") != std::string::npos);
      CHECK(tested.describe().find(".packed") == std::string::npos);
      for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced})
        for (const float special : {0.0f, INFINITY, std::nanf("")}) {
          if (special != 0 && attributes == padded) continue;  // products of a filter and padding are not for all to compute
          const std::vector<e::Tensor> in = {tensor(s.x, 1, 0, layout), tensor(s.w, 2, special, layout)};
          CHECK(different(TSR_F32, tested.run(in)[0], reference.run(in)[0]) == 0);
        }
    }
  }
}

TEST_CASE("minimal filtering leaves infinities, NaN and large values where they are") {
  const std::vector<int64_t> x = {2, 16, 30, 30}, w = {32, 16, 3, 3};
  // One tap of one channel for each result: sums of one value and zeros, which differences with its neighbours must not touch.
  std::string weights;
  for (int64_t i = 0; i < 32 * 16 * 9; ++i) weights += std::string(i ? ", " : "") + (i % 151 == 7 ? "1.0" : "0.0");
  const std::string text = "graph @g(%x: " + type("f32", x) + ") {\n  %w = constant {value = dense<" + type("f32", w) + ": [" +
                           weights + "]>}\n  %y = conv %x, %w, _ {strides = [1, 1], pad_low = [1, 1], pad_high = [1, 1], " +
                           "dilations = [1, 1]}\n  return %y\n}\n";
  for (const float special : {3e38f, INFINITY, std::nanf("")}) {
    std::vector<float> v = values(x, 1);
    for (size_t i = 5; i < v.size(); i += 1009) v[i] = special, v[i - 2] = -special;
    std::vector<char> bytes(v.size() * 4);
    std::memcpy(bytes.data(), v.data(), bytes.size());
    for (const std::string& backend : cpu_backends()) {
      INFO(backend << " " << special);
      const e::Executable tested = compile(text, backend), reference = compile(text, "reference");
      CHECK(tested.describe().find(".winograd") != std::string::npos);
      const std::vector<e::Tensor> in = {arrange(TSR_F32, x, bytes, Layout::Dense)};
      CHECK(different(TSR_F32, tested.run(in)[0], reference.run(in)[0]) == 0);
    }
  }
}

}  // namespace tessera::differential
