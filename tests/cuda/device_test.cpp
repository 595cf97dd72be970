// SPDX-License-Identifier: Apache-2.0
// Programs on the fake driver: the whole way from text to launches, with the reference's numbers.
#include <catch2/catch.hpp>
#include <thread>

#include "support.hpp"

using namespace tessera::test;

namespace {

const char* const kSoftmax = R"(graph @g(%x: f32[6, 300]@cuda:0) -> (f32[6, 300]@cuda:0) {
  %y = softmax %x {axis = -1}
  return %y
})";

std::string on_host(std::string text) {
  for (size_t at; (at = text.find("@cuda:0")) != std::string::npos;) text.erase(at, 7);
  for (size_t at; (at = text.find("cuda:0")) != std::string::npos;) text.replace(at, 6, "cpu");
  return text;
}

void check_against_reference(const std::string& text, const std::vector<std::vector<int64_t>>& sizes) {
  const e::Executable device = compile(cuda(), text), reference = compile(host(), on_host(text));
  std::vector<e::Tensor> in, want_in;
  for (size_t i = 0; i < sizes.size(); ++i) {
    want_in.push_back(numbers(sizes[i], i + 1));
    in.push_back(want_in.back().copy_to(gpu()));
  }
  const auto got = device.run(in), want = reference.run(want_in);
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], want[i]) < 1e-6);
}

}  // namespace

TEST_CASE("softmax runs on the device in one kernel") {
  check_against_reference(kSoftmax, {{6, 300}});
  const std::string plan = compile(cuda(), kSoftmax).plan();
  INFO(plan);
  CHECK(plan.find("cuda.softmax") != std::string::npos);
  CHECK(plan.find("copy ") == std::string::npos);
}

TEST_CASE("fused groups run as one kernel, with symbolic sizes by value") {
  const std::string text = R"(graph @g(%x: f32[s0, 40]@cuda:0, %b: f32[40]@cuda:0) -> (f32[s0, 40]@cuda:0) {
    %a = add %x, %b
    %t = tanh %a
    %y = mul %t, %x
    return %y
  })";
  const e::Executable device = compile(cuda(), text), reference = compile(host(), on_host(text));
  INFO(device.plan());
  CHECK(device.plan().find("cuda.fused") != std::string::npos);
  for (const int64_t rows : {1, 7, 33}) {
    const e::Tensor x = numbers({rows, 40}, 1), b = numbers({40}, 2);
    const auto got = device.run(std::vector<e::Tensor>{x.copy_to(gpu()), b.copy_to(gpu())});
    CHECK(difference(got[0], reference.run(std::vector<e::Tensor>{x, b})[0]) < 1e-6);
  }
}

TEST_CASE("the gradient of a cross entropy is one kernel, and checks its classes") {
  const std::string text =
      R"(graph @g(%l: f32[s0, 40]@cuda:0, %i: i64[s0, 1]@cuda:0, %u: f32[s0, 1]@cuda:0) -> (f32[s0, 40]@cuda:0) {
    %z = constant {value = dense<f32[]: 0.0>}
    %f = full %z {shape = [s0, 40]}
    %a = scatter %f, %i, %u {axis = 1}
    %e = exp %l
    %s = reduce_sum %a {axes = [1], keepdims = true}
    %p = mul %e, %s
    %d = sub %a, %p
    return %d
  })";
  const e::Executable device = compile(cuda(), text), reference = compile(host(), on_host(text));
  const std::string plan = device.plan();
  INFO(plan);
  CHECK(plan.find("cuda.fused") != std::string::npos);
  CHECK(plan.find("cuda.scatter") == std::string::npos);
  CHECK(plan.find("cuda.full") == std::string::npos);
  const e::Tensor l = numbers({3, 40}, 1), u = numbers({3, 1}, 2);
  const auto classes = [](int64_t a, int64_t b, int64_t c) {
    e::Tensor i = e::Tensor::create(TSR_I64, std::vector<int64_t>{3, 1});
    const int64_t all[] = {a, b, c};
    std::memcpy(i.data(), all, sizeof all);
    return i;
  };
  const auto run = [&](const e::Tensor& i) {
    return device.run(std::vector<e::Tensor>{l.copy_to(gpu()), i.copy_to(gpu()), u.copy_to(gpu())})[0].copy_to(0);
  };
  const e::Tensor i = classes(0, 39, 2);
  CHECK(difference(run(i), reference.run(std::vector<e::Tensor>{l, i, u})[0]) < 1e-6);
  const std::string error = error_of([&] { (void)run(classes(0, 40, 1)); });
  INFO(error);
  CHECK((error.starts_with("TSR-R042") || error.starts_with("TSR-R011")));
}

TEST_CASE("a graph that names no device runs on the first one, and strided inputs are copied by a kernel") {
  const std::string text = R"(graph @g(%x: f32[5, 8]) -> (f32[8, 5]) {
    %t = transpose %x {perm = [1, 0]}
    %y = exp %t
    return %y
  })";
  const e::Tensor x = numbers({5, 8}, 3);
  CHECK(difference(compile(cuda(), text).run(std::vector<e::Tensor>{x})[0],
                   compile(host(), text).run(std::vector<e::Tensor>{x})[0]) < 1e-6);
}

TEST_CASE("products go to cuBLASLt, and nothing of an MLP leaves the device") {
  const std::string text =
      R"(graph @mlp(%x: f32[4, 16]@cuda:0, %w: f32[16, 8]@cuda:0, %b: f32[8]@cuda:0) -> (f32[4, 8]@cuda:0) {
    %h = matmul %x, %w
    %a = add %h, %b
    %y = relu %a
    return %y
  })";
  check_against_reference(text, {{4, 16}, {16, 8}, {8}});
  const std::string plan = compile(cuda(), text).plan();
  INFO(plan);
  CHECK(plan.find("cuda.cublaslt.dot_general") != std::string::npos);
  CHECK(plan.find("copy ") == std::string::npos);
}

TEST_CASE("products of every layout, batch and size") {
  const auto product = [](const char* a, const char* b, const char* d, const char* attributes) {
    return std::string("graph @g(%a: f32[") + a + "]@cuda:0, %b: f32[" + b + "]@cuda:0) -> (f32[" + d +
           "]@cuda:0) {\n  %d = dot_general %a, %b {" + attributes + "}\n  return %d\n}";
  };
  check_against_reference(product("5, 7", "7, 3", "5, 3", "lhs_contract = [1], rhs_contract = [0]"), {{5, 7}, {7, 3}});
  check_against_reference(product("7, 5", "7, 3", "5, 3", "lhs_contract = [0], rhs_contract = [0]"), {{7, 5}, {7, 3}});
  check_against_reference(product("5, 7", "3, 7", "5, 3", "lhs_contract = [1], rhs_contract = [1]"), {{5, 7}, {3, 7}});
  check_against_reference(product("7, 5", "3, 7", "5, 3", "lhs_contract = [0], rhs_contract = [1]"), {{7, 5}, {3, 7}});
  check_against_reference(
      product("2, 5, 7", "2, 7, 3", "2, 5, 3", "lhs_batch = [0], rhs_batch = [0], lhs_contract = [2], rhs_contract = [1]"),
      {{2, 5, 7}, {2, 7, 3}});
  check_against_reference(product("2, 3, 4, 5", "5, 6", "2, 3, 4, 6", "lhs_contract = [3], rhs_contract = [0]"),
                          {{2, 3, 4, 5}, {5, 6}});
  check_against_reference(product("5, 2, 4", "2, 4, 3", "5, 3", "lhs_contract = [1, 2], rhs_contract = [0, 1]"),
                          {{5, 2, 4}, {2, 4, 3}});
  check_against_reference(product("7", "7", "", "lhs_contract = [0], rhs_contract = [0]"), {{7}, {7}});
  check_against_reference(product("5, 0", "0, 3", "5, 3", "lhs_contract = [1], rhs_contract = [0]"), {{5, 0}, {0, 3}});
  check_against_reference(product("0, 7", "7, 3", "0, 3", "lhs_contract = [1], rhs_contract = [0]"), {{0, 7}, {7, 3}});
}

TEST_CASE("a product's workspace begins where the library wants it, wherever the arena has room") {
  // Results of 6,000 bytes, so that what lies behind them begins at no multiple of 256.
  const std::string text = R"(graph @g(%x: f32[500, 3]@cuda:0, %w: f32[3, 3]@cuda:0, %v: f32[3, 3]@cuda:0)
      -> (f32[500, 3]@cuda:0, f32[500, 3]@cuda:0, f32[500, 3]@cuda:0) {
    %a = matmul %x, %w
    %b = matmul %x, %v
    %c = matmul %x, %w
    %p = neg %a
    %q = neg %b
    %r = neg %c
    return %p, %q, %r
  })";
  check_against_reference(text, {{500, 3}, {3, 3}, {3, 3}});
}

TEST_CASE("products of symbolic sizes take the plan of each size") {
  const std::string text = R"(graph @g(%x: f32[s0, 16]@cuda:0, %w: f32[16, 8]@cuda:0) -> (f32[s0, 8]@cuda:0) {
    %y = matmul %x, %w
    return %y
  })";
  const e::Executable device = compile(cuda(), text), reference = compile(host(), on_host(text));
  for (const int64_t rows : {1, 7, 33, 7, 0}) {
    const e::Tensor x = numbers({rows, 16}, 1), w = numbers({16, 8}, 2);
    const auto got = device.run(std::vector<e::Tensor>{x.copy_to(gpu()), w.copy_to(gpu())});
    CHECK(difference(got[0], reference.run(std::vector<e::Tensor>{x, w})[0]) < 1e-6);
  }
}

TEST_CASE("an op without a kernel runs on the host between device kernels") {
  check_against_reference(R"(graph @g(%x: f32[4, 6, 2]@cuda:0, %y: f32[2, 4, 3]@cuda:0) -> (f32[6, 3]@cuda:0) {
    %a = exp %x
    %h = dot_general %a, %y {lhs_contract = [0, 2], rhs_contract = [1, 0]}
    %r = relu %h
    return %r
  })",
                          {{4, 6, 2}, {2, 4, 3}});
}

TEST_CASE("faults of data reach the host") {
  const std::string text = R"(graph @g(%x: f32[4, 3]@cuda:0, %i: i64[2]@cuda:0) -> (f32[2, 3]@cuda:0) {
    %y = gather %x, %i {axis = 0}
    return %y
  })";
  const e::Executable device = compile(cuda(), text);
  e::Tensor i = e::Tensor::create(TSR_I64, std::vector<int64_t>{2});
  static_cast<int64_t*>(i.data())[0] = 1, static_cast<int64_t*>(i.data())[1] = 9;
  const std::string error = error_of([&] {
    const auto y = device.run(std::vector<e::Tensor>{numbers({4, 3}, 1).copy_to(gpu()), i.copy_to(gpu())});
    (void)y[0].copy_to(0);
  });
  INFO(error);
  CHECK((error.starts_with("TSR-R042") || error.starts_with("TSR-R011")));
}

TEST_CASE("two threads on streams of their own") {
  const e::Executable device = compile(cuda(), kSoftmax), reference = compile(host(), on_host(kSoftmax));
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t seed) {
    const e::Stream stream(gpu());
    const e::StreamScope scope(stream);
    for (uint64_t i = 0; i < 5; ++i) {
      const e::Tensor x = numbers({6, 300}, seed * 100 + i);
      if (difference(device.run(std::vector<e::Tensor>{x.copy_to(gpu())})[0], reference.run(std::vector<e::Tensor>{x})[0]) >
          1e-6)
        ++wrong;
    }
  };
  std::thread one(work, 1), two(work, 2);
  one.join();
  two.join();
  CHECK(wrong == 0);
}

TEST_CASE("memory is given back, and running out of it names who holds what") {
  if (hardware()) return;  // what others take would change the numbers
  const uint64_t before = used();
  {
    const e::Tensor x = numbers({1000, 1000}, 1).copy_to(gpu());
    CHECK(used() >= before + 4000000);
    const std::string error = error_of([&] {
      (void)e::Tensor::create(TSR_F32, std::vector<int64_t>{1 << 14, 1 << 14}, gpu());
    });
    INFO(error);
    CHECK(error.starts_with("TSR-R001"));
    CHECK(error.find("asked for 1073741824 bytes") != std::string::npos);
    CHECK(error.find("the largest: 3.8 MiB") != std::string::npos);
  }
  CHECK(used() <= before + (1 << 22));
}
