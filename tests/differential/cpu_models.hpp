// SPDX-License-Identifier: Apache-2.0
// Nodes with constant weights of the cpu backend beside the reference, which has the same numbers.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

inline std::string type(const std::string& dtype, const std::vector<int64_t>& sizes) {
  std::string out = dtype + "[";
  for (size_t i = 0; i < sizes.size(); ++i) out += (i ? ", " : "") + std::to_string(sizes[i]);
  return out + "]";
}

// Multiples of 1/64 in [-1, 1]: exact in every dtype, so are their products, and in f32 their sums here.
inline std::vector<float> values(const std::vector<int64_t>& sizes, uint64_t seed) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  std::mt19937_64 random(seed);
  std::vector<float> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(static_cast<float>(static_cast<int64_t>(random() % 129) - 64) / 64);
  return out;
}

inline std::string literal(const std::string& dtype, const std::vector<int64_t>& sizes, const std::vector<float>& v) {
  std::string out = "constant {value = dense<" + type(dtype, sizes) + ": [";
  for (size_t i = 0; i < v.size(); ++i) {
    char text[32];
    std::snprintf(text, sizeof text, i ? ", %.6f" : "%.6f", static_cast<double>(v[i]));
    out += text;
  }
  return out + "]>}";
}

struct Model {
  const char* op;
  const char* attributes;
  std::vector<int64_t> x, w, bias;  // bias: empty for none
};

inline std::string text_of(const Model& m, const std::string& dtype) {
  const std::string call = std::string("%y = ") + m.op + " %x, %w" +
                           (m.bias.empty() ? std::string(m.op[0] == 'l' || m.op[0] == 'c' ? ", _" : "") : ", %b") + " " +
                           m.attributes;
  std::string text = "graph @g(%x: " + type(dtype, m.x) + ") {\n  %w = " + literal(dtype, m.w, values(m.w, 2)) + "\n";
  if (!m.bias.empty()) text += "  %b = " + literal(dtype, m.bias, values(m.bias, 3)) + "\n";
  return text + "  " + call + "\n  return %y\n}\n";
}

// Elements that are neither equal nor both NaN.
inline int64_t different(uint32_t code, const e::Tensor& got, const e::Tensor& want) {
  int64_t n = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    const float a = load_as<float>(code, got.data(), i), b = load_as<float>(code, want.data(), i);
    if (!(a == b || (a != a && b != b))) ++n;
  }
  return n;
}

// `kernel`: part of the name of the kernel that is to run; `option`: of runner.hpp, such as "+2x2".
inline void check(const Model& m, const std::string& dtype, uint32_t code, const char* kernel = "packed",
                  const char* option = "") {
  const std::string text = text_of(m, dtype);
  INFO(m.op << " " << m.attributes << " " << dtype << type("", m.x) << type("", m.w));
  const std::vector<float> v = values(m.x, 1);
  std::vector<char> bytes(v.size() * static_cast<size_t>(dtype_bits(code)) / 8);
  for (size_t i = 0; i < v.size(); ++i) store_from(code, bytes.data(), static_cast<int64_t>(i), v[i]);
  for (std::string backend : cpu_backends()) {
    backend.insert(backend.find(':'), option);
    INFO(backend);
    // The reference rounds linear once, bias included; eager rounds where the record says, before the bias too.
    const e::Executable tested = compile(text, backend), reference = compile(text, code == TSR_F32 ? "reference" : "eager");
    CHECK(tested.describe().find(kernel) != std::string::npos);
    for (const Layout layout : {Layout::Dense, Layout::Transposed, Layout::Sliced}) {
      const std::vector<e::Tensor> in = {arrange(code, m.x, bytes, layout)};
      const e::Tensor got = tested.run(in)[0], want = reference.run(in)[0];
      REQUIRE(got.elements() == want.elements());
      CHECK(different(code, got, want) == 0);
    }
  }
}

}  // namespace tessera::differential
