// SPDX-License-Identifier: Apache-2.0
// Matrix products of every instruction set that this machine has, against plain loops in double.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bare_host.hpp"
#include "gemm/gemm.hpp"
#include "tessera/dtypes.hpp"

namespace {

using namespace cpu;

const bool host_is_set = (bare::set_host(), true);

struct Matrix {
  uint32_t dtype = TSR_F32;
  std::vector<char> bytes;
  Matrix(uint32_t d, int64_t n, uint64_t seed) : dtype(d), bytes(static_cast<size_t>(n * tessera::dtype_bits(d) / 8 + 64)) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> values(-1, 1);
    for (int64_t i = 0; i < n; ++i) tessera::store_from(d, bytes.data(), i, values(random));
  }
  double at(int64_t i) const { return tessera::load_as<double>(dtype, bytes.data(), i); }
};

std::vector<const GemmIsa*> kernels(uint32_t dtype) {
  std::vector<const GemmIsa*> out;
  for (const Isa& isa : all_isas())
    if (can_run(isa))
      if (const GemmIsa* g = gemm_kernels(isa, dtype, dtype); g && (out.empty() || out.back() != g)) out.push_back(g);
  return out;
}

struct Workspace {
  void* p;
  int64_t bytes;
  explicit Workspace(int64_t n) : p(std::aligned_alloc(64, static_cast<size_t>((n + 191) / 64 * 64))), bytes(n) {
    std::memset(p, 0xff, static_cast<size_t>((n + 191) / 64 * 64));  // NaN: nothing may be read before it is written
  }
  ~Workspace() {
    bool intact = true;  // nothing was written behind its end
    for (int64_t i = bytes; i < bytes + 64; ++i) intact = intact && static_cast<unsigned char*>(p)[i] == 0xff;
    CHECK(intact);
    std::free(p);
  }
};

struct Case {
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;  // stored as [k, m], as [n, k]
  uint32_t dtype = TSR_F32, out = TSR_F32;
  bool bias = false, packed = false;
};

std::string text(const Case& c) {
  return std::to_string(c.batch) + " x " + std::to_string(c.m) + "x" + std::to_string(c.n) + "x" + std::to_string(c.k) +
         (c.a_transposed ? " a^T" : "") + (c.b_transposed ? " b^T" : "") + (c.packed ? " packed" : "") +
         (c.bias ? " bias" : "") + " " + std::string(tessera::dtype_name(c.dtype)) + " -> " +
         std::string(tessera::dtype_name(c.out));
}

void fill(Gemm& g, const Case& c) {
  if (c.batch > 1) g.batch.push(c.batch, {c.m * c.k, c.packed ? 0 : c.k * c.n});
  g.m.push(c.m, {c.a_transposed ? 1 : c.k});
  g.n.push(c.n, {c.b_transposed ? c.k : 1});
  g.k.push(c.k, {c.a_transposed ? c.m : 1, c.b_transposed ? 1 : c.n});
}

// Bytes of C, for every number of threads the same.
std::vector<char> run(const GemmIsa& isa, const Case& c, const Matrix& a, const Matrix& b, const Matrix& bias) {
  Gemm g;
  g.isa = &isa;
  fill(g, c);
  g.a = a.bytes.data(), g.b = b.bytes.data();
  g.a_dtype = g.b_dtype = c.dtype, g.c_dtype = c.out;
  std::vector<char> packed;
  if (c.packed) {
    packed.resize(static_cast<size_t>(packed_matrix_bytes(isa, c.n, c.k)));
    pack_matrix(isa, g.b, c.dtype, g.n, g.k, packed.data());
    g.packed_b = packed.data();
    g.b = nullptr;
  }
  if (c.bias) g.bias = bias.bytes.data(), g.bias_dtype = c.out;
  std::vector<char> first;
  for (const int threads : {3, 1, 2}) {
    bare::threads() = threads;
    Workspace w(gemm_workspace(isa, c.batch, c.m, c.n, c.k, {false, c.packed, false}, threads));
    const size_t bytes = static_cast<size_t>(c.batch * c.m * c.n * tessera::dtype_bits(c.out) / 8);
    std::vector<char> out(bytes + 64, static_cast<char>(0x7f));
    g.c = out.data();
    gemm_run(g, w.p, threads);
    for (size_t i = 0; i < 64; ++i) REQUIRE(out[bytes + i] == 0x7f);
    if (first.empty()) first = out;
    CHECK(out == first);
  }
  bare::threads() = 3;
  return first;
}

void check(const Case& c) {
  INFO(text(c));
  const Matrix a(c.dtype, c.batch * c.m * c.k, 1), b(c.dtype, (c.packed ? 1 : c.batch) * c.k * c.n, 2), bias(c.out, c.n, 3);
  std::vector<double> want(static_cast<size_t>(c.batch * c.m * c.n)), scale(want.size());
  for (int64_t x = 0; x < c.batch; ++x)
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j) {
        double sum = 0, size = 0;
        for (int64_t p = 0; p < c.k; ++p) {
          const double y = a.at(x * c.m * c.k + (c.a_transposed ? p * c.m + i : i * c.k + p)) *
                           b.at((c.packed ? 0 : x * c.k * c.n) + (c.b_transposed ? j * c.k + p : p * c.n + j));
          sum += y;
          size += std::abs(y);
        }
        const size_t at = static_cast<size_t>((x * c.m + i) * c.n + j);
        want[at] = sum + (c.bias ? bias.at(j) : 0);
        scale[at] = size + 1;
      }
  // Errors of summation in f32 (Higham, "Accuracy and Stability of Numerical Algorithms", 3.5), and one or two roundings of the
  // result.
  const double unit = std::ldexp(1, -24), rounding = c.out == TSR_F32    ? std::ldexp(1, -24)
                                                     : c.out == TSR_BF16 ? std::ldexp(1, -8)
                                                                         : std::ldexp(1, -11);
  for (const GemmIsa* isa : kernels(c.dtype)) {
    INFO(isa->name);
    const std::vector<char> got = run(*isa, c, a, b, bias);
    int64_t wrong = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double x = tessera::load_as<double>(c.out, got.data(), static_cast<int64_t>(i));
      const double bound = 2 * unit * std::sqrt(static_cast<double>(c.k) + 1) * 4 * scale[i] +
                           2 * rounding * (std::abs(want[i]) + (c.bias ? 1 : 0));
      if (!(std::abs(x - want[i]) <= bound)) ++wrong;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("every height and width of a tile") {
  for (int64_t m = 1; m <= 35; ++m) check({1, m, 40 + m % 3, 19, m % 2 == 0, m % 3 == 0});
  for (const int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 65, 100}) check({1, 5, n, 33, false, n % 2 == 0});
}

TEST_CASE("every depth, in one piece and in several") {
  for (const int64_t k : {0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 34, 63, 383, 384, 480, 481, 769, 1000, 1537}) {
    check({1, 13, 70, k, false, false});
    check({1, 29, 37, k, true, true});
    check({1, 3, 70, k, false, true, TSR_BF16, TSR_BF16});
    check({1, 33, 35, k, false, false, TSR_BF16, TSR_F32});
  }
}

TEST_CASE("batches, packed weights, biases, dtypes") {
  for (const uint32_t d : {TSR_F32, TSR_BF16, TSR_F16})
    for (const bool a : {false, true})
      for (const bool b : {false, true})
        for (const bool bias : {false, true}) {
          check({1, 50, 97, 130, a, b, d, d, bias, false});
          check({1, 50, 97, 130, a, b, d, d, bias, true});
          check({5, 9, 20, 31, a, b, d, d, bias, false});
          check({3, 17, 40, 64, a, b, d, d, bias, true});
        }
}

TEST_CASE("more rows than one block holds") {
  check({1, 1500, 40, 400, false, true});
  check({1, 1500, 40, 400, false, true, TSR_F32, TSR_F32, true, true});
  check({2, 1200, 33, 900, true, false, TSR_BF16, TSR_BF16, false, false});
}

// Two and three threads with four tiles each; sums that wait between pieces of K; tiles that do not divide.
TEST_CASE("threads with rows of their own") {
  check({1, 190, 70, 1000, false, false, TSR_F32, TSR_F32, true, true});
  check({1, 113, 257, 384, false, true, TSR_F32, TSR_F32, false, true});
  check({1, 400, 70, 1100, false, false, TSR_BF16, TSR_BF16, true, true});
}

TEST_CASE("empty products") {
  check({1, 0, 5, 3, false, false});
  check({1, 5, 0, 3, false, false});
  check({1, 5, 7, 0, false, false, TSR_F32, TSR_F32, true});
}

TEST_CASE("NaN and infinity reach the results they should and no other") {
  for (const uint32_t d : {TSR_F32, TSR_BF16}) {
    Matrix a(d, 20 * 50, 1), b(d, 50 * 60, 2);
    tessera::store_from(d, a.bytes.data(), 3 * 50 + 7, std::nanf(""));
    tessera::store_from(d, b.bytes.data(), 11 * 60 + 41, INFINITY);
    for (const GemmIsa* isa : kernels(d)) {
      INFO(isa->name);
      const std::vector<char> c = run(*isa, {1, 20, 60, 50, false, false, d, d}, a, b, b);
      for (int64_t i = 0; i < 20; ++i)
        for (int64_t j = 0; j < 60; ++j) {
          const float x = tessera::load_as<float>(d, c.data(), i * 60 + j);
          if (i == 3)
            CHECK(std::isnan(x));
          else if (j == 41)
            CHECK(std::isinf(x));
          else
            CHECK(std::isfinite(x));
        }
    }
  }
}

TEST_CASE("an epilogue sees every element once, with its place") {
  const Case c{2, 37, 75, 1000, false, true};
  const Matrix a(TSR_F32, c.batch * c.m * c.k, 1), b(TSR_F32, c.batch * c.k * c.n, 2);
  for (const GemmIsa* isa : kernels(TSR_F32)) {
    INFO(isa->name);
    const std::vector<char> plain = run(*isa, c, a, b, b);
    std::vector<float> out(plain.size() / 4, 0.0f);
    struct Place {
      float* out;
      int64_t m, n;
    } place{out.data(), c.m, c.n};
    Gemm g;
    g.isa = isa;
    fill(g, c);
    g.a = a.bytes.data(), g.b = b.bytes.data();
    g.a_dtype = g.b_dtype = g.c_dtype = TSR_F32;
    g.context = &place;
    g.epilogue = [](const TileArgs* t) {
      const Place& p = *static_cast<const Place*>(t->context);
      for (int i = 0; i < t->rows; ++i)
        for (int j = 0; j < t->cols; ++j) p.out[(t->batch * p.m + t->row + i) * p.n + t->col + j] += t->sums[i * t->ld + j];
    };
    Workspace w(gemm_workspace(*isa, c.batch, c.m, c.n, c.k, {}, 3));
    gemm_run(g, w.p, 3);
    CHECK(std::memcmp(out.data(), plain.data(), static_cast<size_t>(c.batch * c.m * c.n) * 4) == 0);
  }
}

TEST_CASE("rows and depths that are nests of loops") {
  // a[2, 3, 4, 5] with rows (0, 2) and depth (1, 3); b[3, 6, 5, 2] with depth (0, 2) and columns (3, 1).
  const Matrix a(TSR_F32, 120, 1), b(TSR_F32, 180, 2);
  for (const GemmIsa* isa : kernels(TSR_F32)) {
    Gemm g;
    g.isa = isa;
    g.a = a.bytes.data(), g.b = b.bytes.data();
    g.a_dtype = g.b_dtype = g.c_dtype = TSR_F32;
    g.m.push(2, {60}), g.m.push(4, {5});
    g.k.push(3, {20, 60}), g.k.push(5, {1, 2});
    g.n.push(2, {1}), g.n.push(6, {10});
    std::vector<float> c(8 * 12);
    g.c = c.data();
    Workspace w(gemm_workspace(*isa, 1, 8, 12, 15, {}, 2));
    gemm_run(g, w.p, 2);
    for (int64_t i = 0; i < 8; ++i)
      for (int64_t j = 0; j < 12; ++j) {
        double want = 0;
        for (int64_t p = 0; p < 3; ++p)
          for (int64_t q = 0; q < 5; ++q)
            want += a.at(i / 4 * 60 + p * 20 + i % 4 * 5 + q) * b.at(p * 60 + j % 6 * 10 + q * 2 + j / 6);
        CHECK(std::abs(c[static_cast<size_t>(i * 12 + j)] - want) < 1e-5);
      }
  }
}
