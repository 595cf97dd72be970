// SPDX-License-Identifier: Apache-2.0
// Tensor::to(device) inside compiled functions: an op of the graph, not a break.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <thread>

#include "support.hpp"

using namespace tessera;
using Catch::Contains;

namespace {
const Context& sim() {
  static const Context c = Context::from_text(
      "[plugins]\nload = [\"tessera.opset.standard\", \"tessera.frontend.cpp\", \"tessera.backend.reference\", "
      "\"tessera.backend.sim\"]\n[backends]\norder = [\"sim\", \"reference\"]\n");
  return c;
}
}  // namespace

TEST_CASE("to(device) in a compiled function is an op of its graph") {
  const ContextScope scope(sim());
  const Device sim0("sim:0"), sim1("sim:1");
  int runs = 0;
  const auto f = compile(
      [&](const Tensor& x, const Tensor& w) {
        ++runs;
        return (x.to(sim0).matmul(w).relu().to(sim1) * 2).to(Device());
      },
      {.fullgraph = true, .name = "fn", .context = sim()});
  const auto reference = [](const Tensor& x, const Tensor& w) { return x.matmul(w).relu() * 2; };
  const Tensor w = randn({8, 3});
  const Tensor on_device = w.to(sim0);
  for (int i = 0; i < 4; ++i) {
    const Tensor x = randn({4, 8});
    const Tensor y = f(x, on_device);
    CHECK(y.device() == Device());
    CHECK(values(y) == values(reference(x, w)));
  }
  CHECK(runs == 1);
  CHECK(explain(f).break_count() == 0);
}

TEST_CASE("operands on two devices name both") {
  const ContextScope scope(sim());
  const auto f = compile([](const Tensor& x, const Tensor& y) { return x + y; }, {.name = "fn", .context = sim()});
  CHECK_THROWS_WITH(f(ones({4}).to(Device("sim:0")), ones({4}).to(Device("sim:1"))), Contains("sim:0") && Contains("sim:1"));
  CHECK_THROWS_WITH(f(ones({4}).to(Device("sim:0")), ones({4})), Contains("TSR-I038") && Contains("cpu") && Contains("sim:0"));
}
