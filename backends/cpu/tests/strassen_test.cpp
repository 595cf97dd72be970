// SPDX-License-Identifier: Apache-2.0
// Products by Strassen's algorithm of every instruction set that this machine has, against sums in double.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "bare_host.hpp"
#include "strassen/strassen.hpp"

namespace {

using namespace cpu;

const bool host_is_set = (bare::set_host(), true);

using Floats = std::vector<float>;

Floats random_values(int64_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  Floats out(static_cast<size_t>(n));
  for (float& x : out) x = values(random);
  return out;
}

std::vector<const GemmIsa*> kernels() {
  std::vector<const GemmIsa*> out;
  for (const Isa& isa : all_isas())
    if (can_run(isa))
      if (const GemmIsa* g = gemm_kernels(isa, TSR_F32, TSR_F32); out.empty() || out.back() != g) out.push_back(g);
  return out;
}

// Lines of 64 bytes, each byte 0xff: as floats NaN, so that nothing may be read before it is written, with a line behind that
// nobody may write to.
class Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(bytes), p_(static_cast<char*>(std::aligned_alloc(64, size()))) {
    std::memset(p_, 0xff, size());
  }
  Memory(const Memory&) = delete;
  ~Memory() {
    CHECK(std::all_of(p_ + bytes_, p_ + bytes_ + 64, [](char c) { return c == static_cast<char>(0xff); }));
    std::free(p_);
  }
  char* get() { return p_; }

 private:
  size_t size() const { return static_cast<size_t>((bytes_ + 191) / 64 * 64); }
  int64_t bytes_;
  char* p_;
};

struct Product {
  int64_t m, n, k;
  bool transposed = false;  // B is stored as [n, k]
  Floats a, b, bias, other;
  std::vector<FinishStep> steps = {};
  Product(int64_t rows, int64_t columns, int64_t depth, bool b_transposed = false)
      : m(rows), n(columns), k(depth), transposed(b_transposed), a(random_values(m * k, 1)), b(random_values(k * n, 2)) {}
  float& at_a(int64_t i, int64_t p) { return a[static_cast<size_t>(i * k + p)]; }
  float& at_b(int64_t p, int64_t j) { return b[static_cast<size_t>(transposed ? j * k + p : p * n + j)]; }

  Gemm gemm(const GemmIsa& isa) const {
    Gemm g;
    g.isa = &isa;
    g.m.push(m, {k});
    g.n.push(n, {transposed ? k : 1});
    g.k.push(k, {1, transposed ? 1 : n});
    g.a = a.data();
    g.a_dtype = g.b_dtype = g.c_dtype = TSR_F32;
    if (!bias.empty()) g.bias = bias.data(), g.bias_dtype = TSR_F32;
    g.steps = steps.data();
    g.num_steps = static_cast<int>(steps.size());
    return g;
  }
  // For every number of threads the same.
  Floats run(const GemmIsa& isa, bool* suits = nullptr) {
    Gemm g = gemm(isa);
    Memory packed(strassen_packed_bytes(isa, n, k));
    strassen_pack(isa, b.data(), g.n, g.k, packed.get());
    const char* plain = strassen_plain_form(packed.get());
    if (suits) *suits = plain == nullptr;
    g.packed_b = plain ? plain : packed.get();
    Floats first;
    for (const int threads : {3, 1, 2}) {
      bare::threads() = threads;
      Memory w(plain ? gemm_workspace(isa, 1, m, n, k, {false, true, false}, threads)
                     : strassen_workspace(isa, m, n, k, threads));
      Floats c(static_cast<size_t>(m * n) + 16, 77.0f);
      g.c = c.data();
      plain ? gemm_run(g, w.get(), threads) : strassen_run(g, w.get(), threads);
      CHECK(std::all_of(c.end() - 16, c.end(), [](float x) { return x == 77.0f; }));
      c.resize(static_cast<size_t>(m * n));
      if (first.empty()) first = c;
      CHECK(std::memcmp(c.data(), first.data(), c.size() * sizeof(float)) == 0);
    }
    bare::threads() = 3;
    return first;
  }
  double exact(int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += static_cast<double>(at_a(i, p)) * static_cast<double>(at_b(p, j));
    return sum;
  }
  // What the error of a result is measured in: the largest elements of its row and its column, and the length of the sum.
  std::vector<double> scales() {
    std::vector<double> rows(static_cast<size_t>(m)), columns(static_cast<size_t>(n)), out;
    const auto grow = [](double& most, float x) { most = std::max(most, std::abs(static_cast<double>(x))); };
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t i = 0; i < m; ++i) grow(rows[static_cast<size_t>(i)], at_a(i, p));
      for (int64_t j = 0; j < n; ++j) grow(columns[static_cast<size_t>(j)], at_b(p, j));
    }
    for (const double r : rows)
      for (const double c : columns) out.push_back(r * c * std::sqrt(static_cast<double>(k)));
    return out;
  }
  void check(const GemmIsa& isa) {
    INFO(isa.name << " " << m << "x" << n << "x" << k << (transposed ? " b^T" : ""));
    const Floats c = run(isa);
    const std::vector<double> scale = scales();
    double worst = 0;
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const size_t at = static_cast<size_t>(i * n + j);
        const double error = std::abs(static_cast<double>(c[at]) - exact(i, j));
        worst = std::max(worst, scale[at] > 0 ? error / scale[at] : error > 0 ? 1e9 : 0);
      }
    // Roundings of partial sums by up to 2^-24 of them are a random walk, of terms that are up to four times those of the plain
    // product: five of its standard deviations for the longest sums here.
    CHECK(worst < 24 * std::ldexp(1, -24));
  }
};

}  // namespace

TEST_CASE("strassen: sizes that do and do not divide into blocks, tiles, panels and pieces") {
  for (const GemmIsa* isa : kernels()) {
    for (const int64_t m : {1, 2, 3, 13, 27, 28, 29, 64, 127, 129, 193, 200}) Product(m, 70, 40, m % 2 == 0).check(*isa);
    for (const int64_t n : {1, 16, 31, 33, 64, 65, 128}) Product(35, n, 50).check(*isa);
    for (const int64_t k : {1, 2, 7, 8, 15, 16, 17, 33, 255, 513, 960, 961, 1000, 2000})
      Product(30, 66, k, k % 2 == 0).check(*isa);
  }
}

TEST_CASE("strassen: more rows than are prepared at a time") {
  for (const GemmIsa* isa : kernels()) Product(700, 33, 2100).check(*isa);
}

TEST_CASE("strassen: what follows sees every result once, with its place") {
  for (const GemmIsa* isa : kernels()) {
    Product p(90, 75, 64);
    const Floats plain = p.run(*isa);
    p.bias = random_values(p.n, 5);
    p.other = random_values(p.m * p.n, 6);
    p.steps = {{FinishStep::kAdd, FinishStep::kDense, p.other.data(), 0, 0},
               {FinishStep::kRelu, FinishStep::kScalar, nullptr, 0, 0}};
    const Floats c = p.run(*isa);
    int64_t wrong = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      const float biased = plain[i] + p.bias[i % static_cast<size_t>(p.n)];
      wrong += c[i] != std::max(0.0f, biased + p.other[i]);
    }
    CHECK(wrong == 0);
  }
}

// Without scales an error would be a part of the largest element of the partners too.
TEST_CASE("strassen: rows and columns of very different magnitudes keep their own precision") {
  for (const GemmIsa* isa : kernels()) {
    Product p(64, 96, 128);
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t q = 0; q < p.k; ++q) p.at_a(i, q) *= std::ldexp(1.0f, static_cast<int>(i * 7 % 60) - 30);
    for (int64_t j = 0; j < p.n; ++j)
      for (int64_t q = 0; q < p.k; ++q) p.at_b(q, j) *= std::ldexp(1.0f, static_cast<int>(j * 11 % 60) - 30);
    p.check(*isa);
  }
}

TEST_CASE("strassen: integers are exact") {
  for (const GemmIsa* isa : kernels()) {
    Product p(70, 80, 100);
    for (float& x : p.a) x = std::round(x * 30);
    for (float& x : p.b) x = std::round(x * 30);
    const Floats c = p.run(*isa);
    int64_t wrong = 0;
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) wrong += static_cast<double>(c[static_cast<size_t>(i * p.n + j)]) != p.exact(i, j);
    CHECK(wrong == 0);
  }
}

TEST_CASE("strassen: rows of zeros give zeros, and rows that select give what they select") {
  for (const GemmIsa* isa : kernels()) {
    Product p(64, 70, 96);
    for (int64_t q = 0; q < p.k; ++q) p.at_a(5, q) = p.at_b(q, 11) = 0;
    Floats c = p.run(*isa);
    for (int64_t j = 0; j < p.n; ++j) CHECK(c[static_cast<size_t>(5 * p.n + j)] == 0);
    for (int64_t i = 0; i < p.m; ++i) CHECK(c[static_cast<size_t>(i * p.n + 11)] == 0);
    p.check(*isa);

    p = Product(64, 70, 96);
    for (int64_t q = 0; q < p.k; ++q) p.at_a(7, q) = q == 50;
    c = p.run(*isa);
    int64_t wrong = 0;
    // Sums of weights hold quarters to within a rounding of the larger term.
    for (int64_t j = 0; j < p.n; ++j)
      wrong += std::abs(c[static_cast<size_t>(7 * p.n + j)] - p.at_b(50, j)) > std::ldexp(1.0f, -23);
    CHECK(wrong == 0);
    p.check(*isa);
  }
}

TEST_CASE("strassen: NaN and infinity reach the results they should and no other") {
  for (const GemmIsa* isa : kernels()) {
    INFO(isa->name);
    Product p(60, 66, 80);
    p.at_a(3, 7) = std::numeric_limits<float>::quiet_NaN();
    p.at_a(40, 9) = std::numeric_limits<float>::infinity();
    p.at_b(9, 20) = 0;
    p.at_b(9, 40) = 1e-9f;  // beside a much larger partner
    p.at_b(9, 41) = -1e-9f;
    const Floats c = p.run(*isa);
    int64_t wrong = 0;
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const float x = c[static_cast<size_t>(i * p.n + j)];
        if (i == 3)
          wrong += !std::isnan(x);
        else if (i == 40)
          wrong += j == 20 ? !std::isnan(x) : !(std::isinf(x) && (x > 0) == (p.at_b(9, j) > 0));
        else
          wrong += !(std::abs(static_cast<double>(x) - p.exact(i, j)) < 1e-4);
      }
    CHECK(wrong == 0);
  }
}

TEST_CASE("strassen: values near the ends of the range are multiplied plainly") {
  for (const GemmIsa* isa : kernels()) {
    Product p(40, 64, 32);
    for (float& x : p.a) x *= 1e30f;
    for (float& x : p.b) x *= 1e-6f;
    p.check(*isa);
    for (float& x : p.a) x *= 1e-35f;
    p.check(*isa);
  }
}

TEST_CASE("strassen: weights that do not suit are packed plainly") {
  for (const GemmIsa* isa : kernels()) {
    bool suits = true;
    Product p(40, 64, 32);
    p.at_b(3, 5) = std::numeric_limits<float>::infinity();
    const Floats c = p.run(*isa, &suits);
    CHECK(!suits);
    for (int64_t i = 0; i < p.m; ++i) CHECK(std::isinf(c[static_cast<size_t>(i * p.n + 5)]));
    Product identity(40, 64, 64);
    for (int64_t i = 0; i < 64; ++i)
      for (int64_t j = 0; j < 64; ++j) identity.at_b(i, j) = i == j;
    CHECK(identity.run(*isa, &suits) == identity.a);
    CHECK(!suits);
    Product large(40, 64, 32);
    for (float& x : large.b) x *= 1e20f;
    large.run(*isa, &suits);
    CHECK(!suits);
  }
}

// Root mean square errors, which the documentation states.
TEST_CASE("strassen: errors are at most one and a half times those of the plain product") {
  for (const GemmIsa* isa : kernels()) {
    Product p(128, 64, 768);
    const Floats c = p.run(*isa);
    Gemm g = p.gemm(*isa);
    g.b = p.b.data();
    Memory w(gemm_workspace(*isa, 1, p.m, p.n, p.k, {}, 3));
    Floats plain(c.size());
    g.c = plain.data();
    gemm_run(g, w.get(), 3);
    double of_strassen = 0, of_plain = 0;
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        const size_t at = static_cast<size_t>(i * p.n + j);
        of_strassen += std::pow(static_cast<double>(c[at]) - p.exact(i, j), 2);
        of_plain += std::pow(static_cast<double>(plain[at]) - p.exact(i, j), 2);
      }
    INFO(isa->name << ": " << std::sqrt(of_strassen / of_plain));
    CHECK(std::sqrt(of_strassen / of_plain) < 1.5);
  }
}
