// SPDX-License-Identifier: Apache-2.0
// Fused groups on the cpu backend: the bits of their nodes one by one, the same on every instruction set (but for gelu, which
// those with registers of 512 bits compute from tables), and close to the reference.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "runner.hpp"
#include "tessera/dtypes.hpp"

namespace tessera::differential {

namespace {

struct Program {
  const char* name;
  double tolerance;  // of the largest magnitude, in f32
  // In a narrower dtype every op rounds to it. Where what is rounded is not exact, the two sides may round to neighbours, a
  // part 2^-m of the value apart (m bits of fraction); what follows magnifies that. `neighbours`: the sum over such roundings
  // of how often they count in the result, as parts 2^-m of the largest magnitude. Products, sums, quotients and roots of equal
  // operands round alike.
  double neighbours;
  const char* text;  // T: dtype
};
// Rows of 40, 197 and 4100: short, cut off, and longer than what is kept beside the outputs.
constexpr Program kPrograms[] = {
    {"gelu", 1e-6, 1, "graph @g(%x: T[12, 197], %b: T[197]) {\n  %a = add %x, %b\n  %y = gelu %a\n  return %y\n}\n"},
    {"softmax", 1e-6, 1,
     "graph @g(%x: T[9, 197], %m: T[9, 1]) {\n  %k7 = constant {value = dense<T[]: [0.125]>}\n  %s = mul %x, %k7\n  %a = add "
     "%s, %m\n  %p = softmax %a {axis = -1}\n"
     "  return %p\n}\n"},
    // softmax, times three, and its rounding
    {"long rows", 1e-5, 2,
     "graph @g(%x: T[3, 4100]) {\n  %a = add %x, %x\n  %p = softmax %a {axis = -1}\n  %k8 = constant {value = dense<T[]: "
     "[3.0]>}\n  %y = mul %p, %k8\n  return %y\n}\n"},
    // layer_norm through tanh, and tanh
    {"residual and layer_norm", 4e-6, 2,
     "graph @g(%x: T[7, 40], %r: T[7, 40], %w: T[40], %b: T[40]) {\n  %h = add %x, %r\n"
     "  %y = layer_norm %h, %w, %b {axis = -1}\n  %z = tanh %y\n  return %h, %z\n}\n"},
    // rms_norm through silu (slope 1.1), and silu
    {"rms_norm", 4e-6, 2.2,
     "graph @g(%x: T[5, 197], %r: T[5, 197], %w: T[197]) {\n  %h = add %x, %r\n  %y = rms_norm %h, %w {axis = -1}\n"
     "  %g = silu %y\n  return %h, %g\n}\n"},
    // the sum, up to 1.5 of the result, and the difference
    {"columns", 4e-6, 2.5,
     "graph @g(%x: T[300, 197], %y: T[300, 197]) {\n  %p = mul %x, %y\n  %s = reduce_sum %p {axes = [0]}\n"
     "  %q = reduce_max %p {axes = [0]}\n  %z = sub %q, %s\n  return %z\n}\n"},
    {"columns of many rows", 4e-6, 1,
     "graph @g(%x: T[8200, 70]) {\n  %p = mul %x, %x\n  %s = reduce_sum %p {axes = [0]}\n  return %s\n}\n"},
    {"a long sum", 4e-6, 1,
     "graph @g(%x: T[60, 2000], %y: T[60, 2000]) {\n  %p = mul %x, %y\n  %s = reduce_sum %p {axes = [0, 1]}\n  return %s\n}\n"},
    {"transpose", 1e-6, 1,
     "graph @g(%x: T[70, 33], %y: T[33, 70]) {\n  %t = transpose %x {perm = [1, 0]}\n  %a = add %t, %y\n  %z = erf %a\n"
     "  return %z\n}\n"},
    {"heads", 1e-6, 1,
     "graph @g(%x: T[6, 96], %b: T[96]) {\n  %a = add %x, %b\n  %h = reshape %a {shape = [6, 4, 24]}\n"
     "  %t = transpose %h {perm = [1, 0, 2]}\n  %k9 = constant {value = dense<T[]: [0.5]>}\n  %s = mul %t, %k9\n  %y = sigmoid "
     "%s\n  return %y\n}\n"},
    // the cube as 0.15 of r, twice; r, and both doubled by the square; the square
    {"powers", 2e-6, 3.6,
     "graph @g(%x: T[5, 197]) {\n  %k10 = constant {value = dense<T[]: [3.0]>}\n  %p = pow %x, %k10\n  %k11 = constant {value "
     "= dense<T[]: [0.044715]>}\n  %q = mul %p, %k11\n  %r = add %x, %q\n  %k12 = constant {value = dense<T[]: [2.0]>}\n  %s = "
     "pow %r, %k12\n  return "
     "%s\n}\n"},
    // log probabilities, averaged, and the mean
    {"cross entropy", 4e-6, 2, "graph @g(%x: T[33, 197], %t: i64[33]) {\n  %y = cross_entropy %x, %t\n  return %y\n}\n"},
    {"adam", 1e-6, 0,
     "graph @g(%p: T[11, 70], %g: T[11, 70], %m: T[11, 70]) {\n  %k13 = constant {value = dense<T[]: [0.9]>}\n  %a = mul %m, "
     "%k13\n  %k14 = constant {value = dense<T[]: [0.1]>}\n  %b = mul %g, %k14\n  %n = add %a, %b\n"
     "  %v = mul %g, %g\n  %q = sqrt %v\n  %k15 = constant {value = dense<T[]: [1.0]>}\n  %d = add %q, %k15\n  %u = div %n, "
     "%d\n  %w = sub %p, %u\n  return %w, %n\n}\n"},
    {"embedding", 1e-6, 1,
     "graph @g(%w: T[197, 40], %t: i64[33], %p: T[33, 40]) {\n  %e = embedding %w, %t\n  %a = add %e, %p\n"
     "  %y = layer_norm %a {axis = -1}\n  return %y\n}\n"},
    {"parts by constant indices", 1e-6, 0,
     "graph @g(%x: T[3, 40, 33]) {\n  %i = constant {value = dense<i64[]: [0]>}\n  %j = constant {value = dense<i64[]: [2]>}\n"
     "  %a = gather %x, %i {axis = 0}\n  %b = gather %x, %j {axis = 0}\n  %t = transpose %b {perm = [1, 0]}\n"
     "  %u = transpose %t {perm = [1, 0]}\n  %y = mul %a, %u\n  return %y\n}\n"},
    // The second output reads what the first one could take over. The running sum, up to 1.5 of the result, and the sum
    {"what one output needs and another may overwrite", 1e-5, 2.5,
     "graph @g(%m: bool[5, 70], %y: T[5, 70]) {\n  %b = cumsum %y {axis = 1}\n  %k16 = constant {value = dense<T[]: [0.5]>}\n"
     "  %k17 = constant {value = dense<T[]: [-3.0]>}\n  %p = select %m, %k16, %k17\n  %q = add %p, %b\n  return %p, %q\n}\n"},
    // exp, doubled by the square, and the square
    {"joined", 1e-6, 3,
     "graph @g(%x: T[5, 70], %y: T[5, 33]) {\n  %a = neg %x\n  %b = exp %y\n  %c = concat %a, %b {axis = 1}\n  %z = mul %c, "
     "%c\n"
     "  return %z\n}\n"},
};

std::vector<e::Tensor> inputs_of(const e::Executable& x, const std::string& dtype, int64_t classes) {
  std::vector<e::Tensor> out;
  const tsr_tables& t = x.tables();
  const tsr_region* region = TSR_AT(tsr_region, t.regions, t.region_stride, 0);
  std::mt19937_64 random(dtype.size());
  for (uint32_t i = 0; i < region->num_inputs; ++i) {
    const tsr_type& type = *TSR_AT(tsr_value, t.values, t.value_stride, region->inputs[i])->type;
    const e::Tensor in = e::Tensor::create(type.dtype, {type.sizes, type.rank});
    for (int64_t k = 0; k < in.elements(); ++k) {
      if (type.dtype == TSR_I64)
        static_cast<int64_t*>(in.data())[k] = static_cast<int64_t>(random() % static_cast<uint64_t>(classes));
      else
        store_from(type.dtype, in.data(), k, static_cast<double>(static_cast<int64_t>(random() % 4001) - 2000) / 1000);
    }
    out.push_back(in);
  }
  return out;
}

}  // namespace

TEST_CASE("fused bits are unfused bits on every instruction set, and near the reference") {
  const std::vector<std::string> backends = cpu_backends();
  size_t fused = 0;
  for (const Program& p : kPrograms)
    for (const std::string dtype : {"f32", "bf16", "f16"}) {
      std::string text = p.text;
      for (size_t at = 0; (at = text.find("T[", at)) != text.npos; at += dtype.size()) text.replace(at, 1, dtype);
      INFO(p.name << " " << dtype);
      const e::Executable reference = compile(text, "reference");
      const std::vector<e::Tensor> in = inputs_of(reference, dtype, 197), want = reference.run(in);
      std::vector<e::Tensor> first_of[2];
      for (const std::string& backend : backends) {
        // AVX-512, and AMX which is beside it, have a formula of their own for gelu.
        const bool avx512 = backend.find("avx512") != backend.npos || backend.find("amx") != backend.npos;
        std::vector<e::Tensor>& first = first_of[p.name == std::string("gelu") && avx512];
        for (const std::string& name : {backend, "cpu+fuse" + backend.substr(3)}) {
          INFO(name);
          const e::Executable x = compile(text, name);
          fused += x.describe().find("k_fused") != std::string::npos || x.describe().find("cpu.fused") != std::string::npos;
          const std::vector<e::Tensor> got = x.run(in);
          REQUIRE(got.size() == want.size());
          for (size_t r = 0; r < got.size(); ++r) {
            const uint32_t code = got[r].dtype();
            double worst = 0, most = 0;
            for (int64_t i = 0; i < got[r].elements(); ++i) {
              const auto a = load_as<double>(code, got[r].data(), i), b = load_as<double>(code, want[r].data(), i);
              worst = std::max(worst, std::abs(a - b));
              most = std::max(most, std::abs(b));
            }
            const double part = code == TSR_BF16 ? 1 / 128.0 : code == TSR_F16 ? 1 / 1024.0 : 0;
            CHECK(worst <= (p.tolerance + p.neighbours * part) * most);
            if (first.size() <= r) {
              first.push_back(got[r]);
            } else {
              const auto bytes = static_cast<size_t>(storage_bytes(code, got[r].elements()));
              CHECK(std::memcmp(got[r].data(), first[r].data(), bytes) == 0);
            }
          }
        }
      }
    }
  if (!backends.empty()) CHECK(fused > backends.size() * 30);
}

TEST_CASE("relaxed numerics round a group's half values once") {
  struct Half {
    const char* name;
    uint32_t code;
  };
  for (const auto& [name, code] : {Half{"bf16", TSR_BF16}, {"f16", TSR_F16}}) {
    const std::string t(name);
    const std::string text = "graph @g(%x: " + t + "[1003], %b: " + t +
                             "[1003]) {\n  %a = add %x, %b\n  %m = mul %a, %x\n  %y = sub %m, %b\n  return %y\n}\n";
    std::mt19937_64 random(5);
    std::vector<char> x(2 * 1003), b(2 * 1003), each(2 * 1003), once(2 * 1003);
    const auto rounded = [&](float v) {
      char bits[2];
      store_from(code, bits, 0, v);
      return load_as<float>(code, bits, 0);
    };
    for (int64_t i = 0; i < 1003; ++i) {
      store_from(code, x.data(), i, static_cast<float>(random() % 4001) / 1000 - 2);
      store_from(code, b.data(), i, static_cast<float>(random() % 4001) / 1000 - 2);
      const float p = load_as<float>(code, x.data(), i), q = load_as<float>(code, b.data(), i);
      const float sum = p + q, product = sum * p, between = rounded(rounded(sum) * p);
      store_from(code, each.data(), i, between - q);
      store_from(code, once.data(), i, product - q);
    }
    CHECK(each != once);
    const std::vector<e::Tensor> in = {arrange(code, {1003}, x, Layout::Dense), arrange(code, {1003}, b, Layout::Dense)};
    for (const std::string& backend : cpu_backends()) {
      INFO(backend << " " << name);
      const std::string isa = backend.substr(backend.find(':'));
      const std::vector<e::Tensor> strict = compile(text, "cpu+fuse" + isa).run(in),
                                   relaxed = compile(text, "cpu+fuse+relaxed" + isa).run(in);
      CHECK(std::memcmp(strict[0].data(), each.data(), each.size()) == 0);
      CHECK(std::memcmp(relaxed[0].data(), once.data(), once.size()) == 0);
    }
  }
}

TEST_CASE("relaxed numerics may take only a subnormal number for zero, and a NaN for another") {
  const std::string text = "graph @g(%x: bf16[1003], %b: bf16[1003]) {\n  %a = mul %x, %b\n  %y = add %a, %b\n  return %y\n}\n";
  // Infinity, the largest number, the least normal one, subnormal ones, 0, 1, NaN; each with both signs.
  constexpr uint16_t kEdges[] = {0x7f80, 0x7f7f, 0x0080, 0x007f, 0x0001, 0x0000, 0x3f80, 0x7fc0, 0x7f81};
  std::mt19937_64 random(6);
  std::vector<char> x(2 * 1003), b(2 * 1003);
  for (std::vector<char>* v : {&x, &b})
    for (size_t i = 0; i < 1003; ++i) {
      const uint64_t r = random();
      const auto bits = static_cast<uint16_t>(r % 2 ? kEdges[r / 4 % std::size(kEdges)] | (r & 2) << 14 : r >> 40);
      std::memcpy(v->data() + 2 * i, &bits, 2);
    }
  const std::vector<e::Tensor> in = {arrange(TSR_BF16, {1003}, x, Layout::Dense), arrange(TSR_BF16, {1003}, b, Layout::Dense)};
  for (const std::string& backend : cpu_backends()) {
    INFO(backend);
    const std::vector<e::Tensor> got = compile(text, "cpu+fuse+relaxed" + backend.substr(backend.find(':'))).run(in);
    int subnormal = 0, nan = 0;
    for (int64_t i = 0; i < 1003; ++i) {
      const float p = load_as<float>(TSR_BF16, x.data(), i), q = load_as<float>(TSR_BF16, b.data(), i), product = p * q,
                  want = product + q, y = load_as<float>(TSR_BF16, got[0].data(), i);
      char bits[2];
      store_from(TSR_BF16, bits, 0, want);
      INFO(i << ": " << p << " * " << q << " + " << q << " is " << want << ", got " << y);
      if (std::isnan(want)) {
        ++nan;
        CHECK(std::isnan(y));
      } else if (want != 0 && std::abs(want) < std::numeric_limits<float>::min()) {
        ++subnormal;
        CHECK(std::signbit(y) == std::signbit(want));
        CHECK((y == 0 || std::memcmp(bits, static_cast<const char*>(got[0].data()) + 2 * i, 2) == 0));
      } else {
        CHECK(std::memcmp(bits, static_cast<const char*>(got[0].data()) + 2 * i, 2) == 0);
      }
    }
    CHECK(subnormal > 50);
    CHECK(nan > 50);
  }
}

}  // namespace tessera::differential
