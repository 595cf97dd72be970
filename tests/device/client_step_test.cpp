// SPDX-License-Identifier: Apache-2.0
// Steps of the client on a device: its memory is handed over as it is, once what writes it has run.
#include <catch2/catch.hpp>

#include <cstdlib>

#include "support.hpp"

namespace client_step_test {

using namespace tessera::test;

TEST_CASE("a client's step on a device sees computed operands, and gives results on that device") {
  const e::Executable run = compile(placed(), R"(graph @g(%x: f32[64]) -> (f32[64]) {
    %a = exp %x
    %b = client_step %a {step = 0, name = "twice", dtypes = ["f32"], ranks = [1], sizes = [64]}
    %c = add %b, %a
    return %c
  })");
  std::vector<float> x(64);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 32;
  const int64_t size = 64;
  const tsr_tensor in{x.data(), TSR_F32, 1, &size, nullptr, 0, 0};
  void* memory = std::aligned_alloc(64, 256);
  const auto output = [&](size_t, const tsr_tensor&, size_t) { return memory; };
  const auto on_host = [&](const tsr_tensor& t) {
    tsr_tensor_handle *wrapped = nullptr, *copy = nullptr;
    e::check(e::api().tensor_wrap(&t, nullptr, nullptr, &wrapped));
    const e::Tensor owner = e::Tensor::adopt(wrapped);
    e::check(e::api().tensor_copy(wrapped, 0, &copy));
    return e::Tensor::adopt(copy);
  };
  bool wrong_device = false;
  const auto step = [&](tsr_client_call& c) {
    CHECK(c.inputs[0].device == e::device("sim:1"));
    CHECK(c.expected[0].device == e::device("sim:1"));
    const e::Tensor twice = on_host(c.inputs[0]);
    auto* v = static_cast<float*>(twice.data());
    for (int i = 0; i < 64; ++i) v[i] *= 2;
    tsr_tensor_handle* there = nullptr;
    e::check(e::api().tensor_copy(twice.handle(), wrong_device ? 0 : c.expected[0].device, &there));
    c.results[0].tensor = there->desc;
    c.results[0].ctx = there;
    c.results[0].release = [](void* t) { e::api().tensor_release(static_cast<tsr_tensor_handle*>(t)); };
  };
  for (int turn = 0; turn < 3; ++turn) {
    run.run_raw({&in, 1}, 1, output, step);
    const auto* y = static_cast<const float*>(memory);
    for (size_t i = 0; i < x.size(); ++i) CHECK(y[i] == Approx(3 * std::exp(x[i])));
  }
  wrong_device = true;
  CHECK(code_of([&] { run.run_raw({&in, 1}, 1, output, step); }) == "TSR-R029");
  std::free(memory);
}

}  // namespace client_step_test
