// SPDX-License-Identifier: Apache-2.0
// Two GPUs in one process, on the fake driver; on hardware where there are two.
#include <atomic>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "graphs_support.hpp"

using namespace tessera::test;

namespace {

// The fake reads how many there are when it is initialised. False: there is one only.
bool two() {
  if (!hardware()) setenv("FAKE_CUDA", "devices=2", 0);
  (void)gpu();
  return error_of([] { (void)numbers({4}, 1).copy_to(e::device("cuda:1")); }).empty();
}

const char* const kBoth = R"(graph @g(%x: f32[6, 8]@cuda:0, %w: f32[8, 8]@cuda:1) -> (f32[6, 8]@cuda:0, f32[6, 8]@cuda:1) {
  %a = softmax %x {axis = -1}
  %b = to_device %a {device = "cuda:1"}
  %c = matmul %b, %w
  %d = to_device %c {device = "cuda:0"}
  %e = mul %d, %a
  %f = softmax %c {axis = 0}
  return %e, %f
})";

std::string on_host(std::string text) {
  for (const char* device : {"@cuda:0", "@cuda:1"})
    for (size_t at; (at = text.find(device)) != std::string::npos;) text.erase(at, std::strlen(device));
  for (const char* device : {"cuda:0", "cuda:1"})
    for (size_t at; (at = text.find(device)) != std::string::npos;) text.replace(at, std::strlen(device), "cpu");
  return text;
}

}  // namespace

TEST_CASE("a program on two GPUs copies between them and gives the reference's numbers, with and without graphs") {
  if (!two()) return;
  const Place place("cuda");
  const e::Executable reference = compile(host(), on_host(kBoth));
  for (const e::Context* context : {place.steps.get(), place.graphs.get()}) {
    const e::Executable p = compile(*context, kBoth);
    for (uint64_t i = 0; i < 4; ++i) {
      const e::Tensor x = numbers({6, 8}, i), w = numbers({8, 8}, 10 + i);
      const auto got = p.run(std::vector<e::Tensor>{x.copy_to(e::device("cuda:0")), w.copy_to(e::device("cuda:1"))});
      const auto want = reference.run(std::vector<e::Tensor>{x, w});
      CHECK(difference(got[0], want[0]) < 1e-6);
      CHECK(difference(got[1], want[1]) < 1e-6);
    }
  }
}

TEST_CASE("a thread for each GPU has graphs and memory of its own") {
  if (!two()) return;
  const Place place("cuda");
  std::atomic<int> wrong{0};
  std::string thrown[2];
  const auto work = [&](int number) {
    try {
      const std::string name = "cuda:" + std::to_string(number);
      std::string text = R"(graph @g(%x: f32[s0, 8]@gpu, %w: f32[8, 8]@gpu) -> (f32[s0, 8]@gpu) {
        %a = softmax %x {axis = -1}
        %b = matmul %a, %w
        %c = softmax %b {axis = -1}
        return %c
      })";
      for (size_t at; (at = text.find("@gpu")) != std::string::npos;) text.replace(at, 4, "@" + name);
      const e::Executable graphs = compile(*place.graphs, text), reference = compile(host(), on_host(text));
      const e::Tensor w = numbers({8, 8}, 3), placed = w.copy_to(e::device(name));
      for (int64_t i = 0; i < 12; ++i) {
        const e::Tensor x = numbers({1 + i * 3, 8}, static_cast<uint64_t>(i));
        const e::Tensor y = graphs.run(std::vector<e::Tensor>{x.copy_to(e::device(name)), placed})[0];
        if (!(difference(y, reference.run(std::vector<e::Tensor>{x, w})[0]) < 1e-6)) ++wrong;
      }
    } catch (const std::exception& e) {
      thrown[number] = e.what();
    }
  };
  std::thread one(work, 0), other(work, 1);
  one.join();
  other.join();
  CHECK(thrown[0] == "");
  CHECK(thrown[1] == "");
  CHECK(wrong == 0);
}

TEST_CASE("operands on two GPUs are an error that names both") {
  if (!two()) return;
  const std::string error = error_of([] {
    (void)compile(cuda(), R"(graph @g(%x: f32[4]@cuda:0, %y: f32[4]@cuda:1) -> (f32[4]@cuda:0) {
      %z = add %x, %y
      return %z
    })");
  });
  INFO(error);
  CHECK(error.find("cuda:0") != std::string::npos);
  CHECK(error.find("cuda:1") != std::string::npos);
}
