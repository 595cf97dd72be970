// SPDX-License-Identifier: Apache-2.0
// Small elementwise chains on the cpu backend where generating code does not pay: interpreted, with eager's bits.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// Every pair of special values meets at some element.
e::Tensor tensor(uint32_t dtype, const std::vector<int64_t>& sizes, uint64_t seed) {
  const double special[] = {0.0, -0.0, 1.0, -1.5, INFINITY, -INFINITY, NAN, 1e-40, 3e38};
  e::Tensor t = e::Tensor::create(dtype, sizes);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const uint64_t r = random();
    const double v = r % 3 == 0 ? special[r / 3 % std::size(special)] : static_cast<double>(r % 4001) / 977 - 2;
    store_from(dtype, t.data(), i, v);
  }
  return t;
}

// Equal bits; which NaN it is does not matter.
bool same(uint32_t dtype, const e::Tensor& a, const e::Tensor& b) {
  const size_t width = static_cast<size_t>(dtype_bits(dtype)) / 8;
  for (int64_t i = 0; i < b.elements(); ++i) {
    const double x = load_as<double>(dtype, a.data(), i), y = load_as<double>(dtype, b.data(), i);
    const auto at = static_cast<size_t>(i) * width;
    if (!(x != x && y != y) &&
        std::memcmp(static_cast<const char*>(a.data()) + at, static_cast<const char*>(b.data()) + at, width) != 0)
      return false;
  }
  return true;
}

struct Program {
  const char* text;  // T: dtype, N: size
  int kernels;       // interpreted ones
};

}  // namespace

TEST_CASE("small elementwise chains are interpreted with the bits of single ops") {
  const Program programs[] = {
      {"graph @g(%x: T[N], %y: T[N]) {\n  %a = add %x, %y\n  %b = mul %a, %x\n  %c = sub %b, %y\n  %d = div %c, %a\n"
       "  return %d\n}\n",
       1},
      {"graph @g(%x: T[N], %y: T[N]) {\n  %a = maximum %x, %y\n  %b = minimum %y, %x\n  %c = relu %a\n  %d = abs %b\n"
       "  %e = sqrt %d\n  %f = neg %e\n  %g = add %f, %c\n  return %a, %b, %g\n}\n",
       1},
      // A number, a tensor of one element, another order of reading, a value that is read twice.
      {"graph @g(%x: T[2, N], %y: T[1]) {\n  %k = constant {value = dense<T[]: [0.375]>}\n  %a = mul %x, %k\n"
       "  %b = sub %y, %a\n  %c = mul %b, %b\n  %d = div %k, %c\n  %e = add %d, %a\n  return %e, %c\n}\n",
       1},
      {"graph @g(%x: T[N, 3], %y: T[N, 3]) {\n  %a = add %x, %y\n  %b = reshape %a {shape = [3, N]}\n"
       "  %c = reshape %y {shape = [3, N]}\n  %d = mul %b, %c\n  return %d\n}\n",
       1},
      // What is repeated over rows is left to eager.
      {"graph @g(%x: T[N, 3], %y: T[3]) {\n  %a = add %x, %y\n  %b = neg %a\n  return %b\n}\n", 1},
  };
  for (std::string backend : cpu_backends()) {
    backend = "cpu+fuse+small:" + backend.substr(backend.find(':') + 1);
    for (const Program& p : programs)
      for (const uint32_t dtype : {TSR_F32, TSR_F64})
        for (const int64_t n : {1, 2, 8, 61, 64, 65, 200}) {
          const std::string text = replaced(replaced(p.text, "T[", dtype == TSR_F32 ? "f32[" : "f64["), "N", std::to_string(n));
          INFO(backend << "\n" << text);
          const e::Executable tested = compile(text, backend), single = compile(text, "eager");
          const std::string steps = tested.describe();
          CHECK(count(steps, "\"cpu.steps_") >= p.kernels);
          CHECK(count(steps, "\"cpu.fused") == 0);
          std::vector<e::Tensor> in;
          const std::string form = p.text;
          const bool rows = form.find("[2, N]") != form.npos, columns = form.find("[N, 3]") != form.npos;
          const bool row = form.find("%y: T[3]") != form.npos;
          const std::vector<int64_t> sizes = rows      ? std::vector<int64_t>{2, n}
                                             : columns ? std::vector<int64_t>{n, 3}
                                                       : std::vector<int64_t>{n};
          in.push_back(tensor(dtype, sizes, 1));
          in.push_back(tensor(dtype, rows ? std::vector<int64_t>{1} : row ? std::vector<int64_t>{3} : sizes, 2));
          const std::vector<e::Tensor> got = tested.run(in), want = single.run(in);
          REQUIRE(got.size() == want.size());
          for (size_t k = 0; k < want.size(); ++k) CHECK(same(dtype, got[k], want[k]));
        }
  }
}

TEST_CASE("a long chain of small ops becomes few kernels") {
  std::string text = "graph @g(", body = "  %s0 = add %x0, %x1\n";
  for (int k = 0; k < 100; ++k) text += (k ? ", %x" : "%x") + std::to_string(k) + ": f32[8]";
  for (int k = 2; k < 100; ++k)
    body += "  %s" + std::to_string(k - 1) + " = add %s" + std::to_string(k - 2) + ", %x" + std::to_string(k) + "\n";
  text += ") {\n" + body + "  return %s98\n}\n";
  for (const std::string& backend : cpu_backends()) {
    const e::Executable tested = compile(text, "cpu+fuse+small:" + backend.substr(backend.find(':') + 1));
    CHECK(count(tested.describe(), "\"kind\":\"kernel\"") <= 4);
    std::vector<e::Tensor> in;
    for (uint64_t k = 0; k < 100; ++k) in.push_back(tensor(TSR_F32, {8}, k));
    CHECK(same(TSR_F32, tested.run(in)[0], compile(text, "eager").run(in)[0]));
  }
}

TEST_CASE("chains of many elements, and programs that pay, are not interpreted") {
  const std::string text = "graph @g(%x: f32[N], %y: f32[N]) {\n  %a = add %x, %y\n  %b = mul %a, %x\n  return %b\n}\n";
  for (std::string backend : cpu_backends()) {
    backend = backend.substr(backend.find(':') + 1);
    CHECK(count(compile(replaced(text, "N", "1025"), "cpu+fuse+small:" + backend).describe(), "cpu.steps_") == 0);
    CHECK(count(compile(replaced(text, "N", "8"), "cpu+fuse:" + backend).describe(), "cpu.steps_") == 0);
  }
}

}  // namespace tessera::differential
