// SPDX-License-Identifier: Apache-2.0
// Calls of random lengths under the executor cudagraphs, on sim and on the fake driver (on a GPU with
// TESSERA_TEST_CUDA=hardware): right results, and nothing new once the lengths have been seen.
#include <atomic>
#include <catch2/catch.hpp>
#include <map>
#include <random>
#include <thread>

#include "graphs_support.hpp"

using namespace tessera::test;

namespace {

constexpr int64_t kLongest = 64, kTokens = 50, kWidth = 16;

// A block of a transformer over a text of s0 tokens. Of its products two have as many columns, or terms, as there are tokens.
const char* const kBlock =
    R"(graph @block(%i: i64[s0]@gpu, %t: f32[50, 16]@gpu, %q: f32[16, 16]@gpu, %w: f32[16, 32]@gpu, %b: f32[32]@gpu,
        %v: f32[32, 16]@gpu) -> (f32[s0, 16]@gpu) {
    %x = gather %t, %i {axis = 0}
    %k = matmul %x, %q
    %s = dot_general %k, %x {lhs_contract = [1], rhs_contract = [1]}
    %p = softmax %s {axis = -1}
    %a = matmul %p, %x
    %h = matmul %a, %w
    %c = add %h, %b
    %g = relu %c
    %o = matmul %g, %v
    %r = add %o, %x
    %n = softmax %r {axis = -1}
    return %n
  })";

struct Weights {
  std::vector<e::Tensor> all;
  explicit Weights(const Place& p)
      : all{p.on(numbers({kTokens, kWidth}, 1)), p.on(numbers({kWidth, kWidth}, 2)), p.on(numbers({kWidth, 32}, 3)),
            p.on(numbers({32}, 4)), p.on(numbers({32, kWidth}, 5))} {}
  std::vector<e::Tensor> with(const e::Tensor& ids) const {
    std::vector<e::Tensor> in = {ids};
    in.insert(in.end(), all.begin(), all.end());
    return in;
  }
};

e::Tensor ids(const Place& place, std::mt19937& random) {
  const int64_t n = std::uniform_int_distribution<int64_t>(1, kLongest)(random);
  e::Tensor t = e::Tensor::create(TSR_I64, std::vector<int64_t>{n});
  for (int64_t i = 0; i < n; ++i)
    static_cast<int64_t*>(t.data())[i] = std::uniform_int_distribution<int64_t>(0, kTokens - 1)(random);
  return place.on(t);
}

// What a call may make once, and no call behind the first hundred.
const char* const kMade[] = {"cuGraphInstantiate", "cuMemCreate",      "cuMemAllocFromPoolAsync",
                             "cuMemAlloc",         "cuModuleLoadData", "cuStreamCreate"};

}  // namespace

TEST_CASE("calls of random lengths give the steps' bits, and make nothing new behind the first hundred") {
  for (const std::string& name : places()) {
    const Place place(name);
    const bool fake = name == "cuda" && !hardware();
    const e::Executable graphs = compile(*place.graphs, place.text(kBlock)), steps = compile(*place.steps, place.text(kBlock));
    const Weights weights(place);
    std::mt19937 random(7);
    int wrong = 0;
    std::map<std::string, uint64_t> first, later;
    for (int i = 0; i < (hardware() ? 1000 : 160); ++i) {
      const std::vector<e::Tensor> in = weights.with(ids(place, random));
      const e::Tensor want = steps.run(in)[0].copy_to(0);  // on the host, so that the pool has its block again
      if (fake) calls(nullptr);
      const e::Tensor y = graphs.run(in)[0];
      for (const char* function : kMade)
        if (fake) (i < 100 ? first : later)[function] += calls(function);
      if (!same_bits(y, want)) ++wrong;
    }
    CHECK(wrong == 0);
    if (!fake) continue;
    // The library's kernels have another form from 24 and from 48 columns on, which no node can be set to.
    CHECK(first["cuGraphInstantiate"] == 3);
    for (const auto& [function, made] : later) {
      INFO(function);
      CHECK(made == 0);
    }
  }
}

TEST_CASE("two threads with random lengths on streams of their own get the steps' bits") {
  for (const std::string& name : places()) {
    const Place place(name);
    const e::Executable graphs = compile(*place.graphs, place.text(kBlock)), steps = compile(*place.steps, place.text(kBlock));
    const Weights weights(place);
    e::check(e::api().synchronize(place.id(), nullptr));
    std::atomic<int> wrong{0};
    std::string thrown[2];
    const auto work = [&](unsigned seed, std::string& error) {
      try {
        const e::Stream stream(place.id());
        const e::StreamScope scope(stream);
        std::mt19937 random(seed);
        for (int i = 0; i < 20; ++i) {
          const std::vector<e::Tensor> in = weights.with(ids(place, random));
          if (!same_bits(graphs.run(in)[0], steps.run(in)[0])) ++wrong;
        }
      } catch (const std::exception& e) {
        error = e.what();
      }
    };
    std::thread one([&] { work(1, thrown[0]); }), two([&] { work(2, thrown[1]); });
    one.join();
    two.join();
    CHECK(thrown[0] == "");
    CHECK(thrown[1] == "");
    CHECK(wrong == 0);
  }
}

TEST_CASE("a program of any length that writes to its input is right, whoever gives the input away") {
  for (const std::string& name : places()) {
    const Place place(name);
    for (const char* how : {"", " donated"}) {
      std::string text = place.text(
          R"(graph @count(%x: f32[s0, 16]@gpu, %s: f32[16, 16]@gpu state "s" -> 1 HOW) -> (f32[s0, 16]@gpu, f32[16, 16]@gpu) {
        %k = matmul %x, %s
        %p = softmax %k {axis = -1}
        %g = dot_general %x, %p {lhs_contract = [0], rhs_contract = [0]}
        %n = add %s, %g
        return %p, %n
      })");
      text.replace(text.find(" HOW"), 4, how);
      const e::Executable graphs = compile(*place.graphs, text), steps = compile(*place.steps, text);
      const e::Tensor mine = place.on(numbers({16, 16}, 3)), other = place.on(numbers({16, 16}, 3));
      std::mt19937 random(11);
      for (uint64_t i = 0; i < 24; ++i) {
        const int64_t n = std::uniform_int_distribution<int64_t>(1, kLongest)(random);
        const e::Tensor x = place.on(numbers({n, 16}, i));
        const auto got = graphs.run(std::vector<e::Tensor>{x, mine}), want = steps.run(std::vector<e::Tensor>{x, other});
        CHECK(same_bits(got[0], want[0]));
        CHECK(same_bits(mine, other));
      }
      CHECK_FALSE(same_bits(mine, place.on(numbers({16, 16}, 3))));
    }
  }
}

TEST_CASE("a library that takes ever other forms ends up beside the graphs, which are not made for ever") {
  if (hardware()) return;  // the fake's forms are known
  const Place place("cuda");
  const std::string text = place.text(R"(graph @wide(%x: f32[s0, 8]@gpu, %w: f32[8, 8]@gpu) -> (f32[s0, 8]@gpu) {
    %a = softmax %x {axis = -1}
    %b = matmul %a, %w
    %c = softmax %b {axis = -1}
    return %c
  })");
  const e::Executable graphs = compile(*place.graphs, text), steps = compile(*place.steps, text);
  const e::Tensor w = place.on(numbers({8, 8}, 2));
  std::mt19937 random(5);
  for (int i = 0; i < 120; ++i) {
    if (i == 60) calls(nullptr);
    const int64_t n = 32 * std::uniform_int_distribution<int64_t>(1, 24)(random);  // some twenty forms
    const e::Tensor x = place.on(numbers({n, 8}, static_cast<uint64_t>(i)));
    CHECK(same_bits(graphs.run(std::vector<e::Tensor>{x, w})[0], steps.run(std::vector<e::Tensor>{x, w})[0]));
  }
  CHECK(calls("cuGraphInstantiate") == 0);
  CHECK(calls("cuGraphLaunch") == 60 * 2);  // before the product and behind it
}
