// SPDX-License-Identifier: Apache-2.0
// Attention with modified scores, written with tensors: one kernel of the cpu backend, compiled once whatever the captured
// tensors hold.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>

#include "support.hpp"

using namespace tessera;
using Json = nlohmann::json;

namespace {

Context cpu() {
  const char* source = std::getenv("TESSERA_SOURCE_DIR");
  return Context(std::string(source ? source : ".") + "/configs/cpu.toml");
}

// A document mask, causal, ALiBi, and a cap: what the scores become is in terms of positions and of five captured tensors.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& slopes, const Tensor& cap,
                 const Tensor& documents) {
  const SymInt n = q.size(2);
  const Tensor query = arange(n).unsqueeze(1), key = arange(n).unsqueeze(0);
  Tensor scores = matmul(q, k.transpose(2, 3)) * 0.25;
  scores = (scores / cap).tanh() * cap;
  scores = scores + (key - query).to(f32) * slopes;
  const Tensor seen = logical_and(key <= query, documents.unsqueeze(1) == documents.unsqueeze(0));
  scores = scores.masked_fill(~seen, -INFINITY);
  return matmul(scores.softmax(-1), v);
}

std::vector<std::string> kernels(const Json& callable) {
  std::vector<std::string> out;
  for (const Json& entry : callable.at("entries"))
    for (const Json& step : entry.at("executable").at("steps"))
      if (step.at("kernel").is_string()) out.push_back(step.at("kernel"));
  return out;
}

Tensor wave(Shape shape, double step) {
  int64_t n = 1;
  std::vector<int64_t> sizes;
  for (const SymInt& s : shape) sizes.push_back(static_cast<int64_t>(s)), n *= sizes.back();
  return (arange(n).to(f32) * step).sin().reshape(shape);
}

}  // namespace

TEST_CASE("a program of scores is one kernel, for every value of what it captures") {
  auto f =
      compile(attention, {.dynamic = Dynamic::no, .args = {"q", "k", "v", "slopes", "cap", "documents"}, .context = cpu()});
  const Tensor q = wave({2, 3, 40, 16}, 0.7), k = wave({2, 3, 40, 16}, 0.3), v = wave({2, 3, 40, 16}, 0.11);
  for (int64_t round = 0; round < 3; ++round) {
    const Tensor slopes = full({3, 1, 1}, 0.1 * static_cast<double>(round)), cap = full({}, 2.0 + static_cast<double>(round)),
                 documents = floor_divide(arange(40), full({}, 7 + round, i64));
    const std::vector<float> got = values(f(q, k, v, slopes, cap, documents)),
                             want = values(attention(q, k, v, slopes, cap, documents));
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= 1e-5f);
  }
  const Json described = Json::parse(f.describe());
  CHECK(described.at("entries").size() == 1);
  CHECK(described.at("misses") == 1);
  const std::vector<std::string> all = kernels(described);
  CHECK(std::count_if(all.begin(), all.end(), [](const std::string& n) { return n.starts_with("cpu.attention_"); }) == 1);
  for (const std::string& n : all) CHECK(n.find("softmax") == std::string::npos);
}

TEST_CASE("lengths of modified attention become symbols") {
  auto f = compile(attention, {.args = {"q", "k", "v", "slopes", "cap", "documents"}, .context = cpu()});
  for (const int64_t n : {9, 33, 40, 600}) {
    const Tensor q = wave({1, 2, n, 8}, 0.7), k = wave({1, 2, n, 8}, 0.3), v = wave({1, 2, n, 8}, 0.11);
    const Tensor slopes = full({2, 1, 1}, 0.01), cap = full({}, 3.0), documents = floor_divide(arange(n), full({}, 300, i64));
    const std::vector<float> got = values(f(q, k, v, slopes, cap, documents)),
                             want = values(attention(q, k, v, slopes, cap, documents));
    for (size_t i = 0; i < got.size(); ++i) REQUIRE(std::abs(got[i] - want[i]) <= 1e-5f);
  }
  const Json described = Json::parse(f.describe());
  CHECK(described.at("entries").size() == 2);  // the first length, and any
  const std::vector<std::string> all = kernels(described);
  CHECK(std::count_if(all.begin(), all.end(), [](const std::string& n) { return n.starts_with("cpu.attention_"); }) == 2);
}
